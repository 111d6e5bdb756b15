"""What serves a recalibrated model, in numpy and pandas alone: rules, scalings, replay of updates.

The library uses this folder, and every saved model carries a copy of it, so that the model loads
where huc-monitor is not installed. It imports nothing of huc_monitor; its imports are relative,
because the copy has another name (`huc_mlflow` names it by its content: modules that travel with
models share one process, and two models must never run each other's code).
"""
