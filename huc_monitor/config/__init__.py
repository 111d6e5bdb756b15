"""Configuration: a YAML file to typed settings."""

from __future__ import annotations

from huc_monitor.config._config import Config, config_schema, load_config, parse_config
from huc_monitor.config._init import init_config
from huc_monitor.config._settings import Settings
from huc_monitor.config._yaml import ConfigError

__all__ = [
    "Config",
    "ConfigError",
    "Settings",
    "config_schema",
    "init_config",
    "load_config",
    "parse_config",
]
