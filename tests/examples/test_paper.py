from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "paper"
METHODS = "Baseline,UC-B,HUC-B,HUC-B (0.05),Temp,Temp->HUC,noise-aware,Auto->noise-aware"


@pytest.fixture(scope="module")
def experiments():
    sys.path.insert(0, str(FOLDER))
    try:
        import experiments.methods
        import experiments.predictors
        import experiments.problem
        import experiments.scoring
        import experiments.tabular
        import experiments.toy

        yield experiments
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture
def run(experiments, capsys):  # noqa: ARG001 - puts the folder on the path
    spec = importlib.util.spec_from_file_location("paper_run", FOLDER / "run.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def call(*arguments: str) -> str:
        script.main(arguments)
        return capsys.readouterr().out

    return call


def support2_stand_in(n=900):
    rng = np.random.default_rng(0)
    severity = rng.normal(size=n)
    frame = pd.DataFrame(index=range(n))
    numbers = ["age", "num.co", "edu", "scoma", "hday", "diabetes", "dementia", "meanbp", "wblc"]
    numbers += ["hrt", "resp", "temp", "pafi", "alb", "bili", "crea", "sod", "ph", "glucose", "bun"]
    numbers += ["urine", "adlp", "adls", "adlsc", "charges", "sps", "surv2m"]
    for name in numbers:
        frame[name] = severity + rng.normal(size=n)
        frame.loc[rng.random(n) < 0.2, name] = np.nan
    frame["age"] = 40 + 50 * rng.random(n)
    frame["sex"] = rng.choice(["male", "female"], n)
    frame["dzclass"] = rng.choice(["ARF/MOSF", "COPD/CHF/Cirrhosis", "Coma", "Cancer"], n)
    frame["dzgroup"] = frame["dzclass"] + rng.choice([" a", " b"], n)
    for name in ("income", "race", "ca"):
        frame[name] = rng.choice(np.array(["u", "v", None], dtype=object), n)
    outcomes = np.array(
        [
            "no(M2 and SIP pres)",
            "adl>=4 (>=5 if sur)",
            "SIP>=30",
            "Coma or Intub",
            "<2 mo. follow-up",
        ]
    )
    codes = np.clip(np.round(severity + rng.normal(size=n) + 2), 0, 4).astype(int)
    frame["sfdm2"] = outcomes[codes].astype(object)
    frame.loc[rng.random(n) < 0.1, "sfdm2"] = None
    return frame


def nsl_kdd_stand_in(n=700):
    rng = np.random.default_rng(1)
    attacks = np.array(["normal", "neptune", "satan", "warezclient", "rootkit"])
    codes = rng.choice(5, n, p=[0.5, 0.25, 0.15, 0.06, 0.04])
    frame = pd.DataFrame({f"count{j}": rng.normal(codes, 2) for j in range(4)})
    frame["src_bytes"] = rng.integers(0, 500, n)
    frame["protocol_type"] = rng.choice(["tcp", "udp", "icmp"], n)
    frame["service"] = rng.choice(["http", "ftp", "smtp", "dns"], n)
    frame["flag"] = rng.choice(["SF", "S0"], n)
    return frame.assign(attack=attacks[codes], difficulty=21)


def massive_stand_in(n=1_500):
    rng = np.random.default_rng(2)
    scenarios = {"alarm": ["set", "off"], "music": ["play", "stop", "like"], "weather": ["query"]}
    intents = np.array([f"{s}_{i}" for s, kinds in scenarios.items() for i in kinds])
    codes = rng.integers(0, intents.size, n)
    words = np.array(["please", "now", "the", "a", "today", "song", "rain", "wake", "louder"])
    texts = [
        " ".join(
            [*rng.choice(words, rng.integers(1, 6)), intents[c] if rng.random() < 0.7 else "uh"]
        )
        for c in codes
    ]
    partition = rng.choice(["train", "validation", "test"], n, p=[0.6, 0.2, 0.2])
    scenario = [intents[c].split("_")[0] for c in codes]
    return pd.DataFrame(
        {"text": texts, "intent": intents[codes], "scenario": scenario, "partition": partition}
    )


def nbaiot_stand_in(n=700):
    rng = np.random.default_rng(3)
    labels = ["benign"]
    labels += [f"gafgyt_{kind}" for kind in ("combo", "junk", "scan", "tcp", "udp")]
    labels += [f"mirai_{kind}" for kind in ("ack", "scan", "syn", "udp", "udpplain")]
    codes = rng.integers(0, 11, n)
    frame = pd.DataFrame({f"MI_dir_L{j}_weight": rng.normal(codes, 2) for j in range(6)})
    return frame.assign(label=np.array(labels)[codes], device=rng.choice(["bell", "camera"], n))


def inaturalist_stand_in(n=500):
    rng = np.random.default_rng(4)
    paths = [
        ("Animalia", "Chordata", "Amphibia", "Anura", "Ranidae", "Lithobates", "L. pipiens"),
        ("Animalia", "Chordata", "Amphibia", "Anura", "Ranidae", "Lithobates", "L. grylio"),
        ("Animalia", "Arthropoda", "Insecta", "Odonata", "Coenagrionidae", "Enallagma", "E. a"),
        (
            "Fungi",
            "Basidiomycota",
            "Agaricomycetes",
            "Agaricales",
            "Amanitaceae",
            "Amanita",
            "A. m",
        ),
    ]
    ranks = ["kingdom", "phylum", "class", "order", "family", "genus", "species"]
    codes = rng.integers(0, len(paths), n)
    frame = pd.DataFrame([paths[c] for c in codes], columns=ranks)
    for name in ("brightness", "contrast", "aspect_ratio"):
        frame[name] = rng.uniform(0.5, 1.5, n)
    return frame.assign(**{f"f{j}": rng.normal(codes, 1.5) for j in range(5)})


STAND_INS = {
    "support2": ("support2.parquet", support2_stand_in),
    "nsl_kdd": ("nsl_kdd_train20.parquet", nsl_kdd_stand_in),
    "massive": ("massive_en.parquet", massive_stand_in),
    "nbaiot": ("nbaiot_sample2000.parquet", nbaiot_stand_in),
    "inaturalist": ("inaturalist_features.parquet", inaturalist_stand_in),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for file, make in STAND_INS.values():
        make().to_parquet(folder / file)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", STAND_INS)
def test_an_experiment_writes_its_table_with_the_papers_figures(name, run, data, tmp_path):
    options = ["--data", str(data), "--out", str(tmp_path), "--quick", "--bases", "LR,DT"]
    printed = run(name, *options, "--methods", METHODS)
    table = pd.read_csv(tmp_path / "quick" / f"{name}.csv")
    assert printed.strip().endswith(f"{name}.md")
    assert set(table["method"]) == set(METHODS.split(","))
    baseline = table[(table["method"] == "Baseline") & (table["base"] == "pooled")]
    paper = pd.read_csv(FOLDER / "paper_tables.csv").query(f"data == '{name}' and base == 'pooled'")
    expected = paper[(paper["method"] == "Baseline") & (paper["metric"] == "huc")]["mean"].item()
    huc = baseline[baseline["metric"] == "huc"]
    assert huc["paper_mean"].item() == expected
    assert 0 < huc["mean"].item() < 1
    readable = (tmp_path / "quick" / f"{name}.md").read_text()
    assert f"[{expected:.4f} ±" in readable


def test_a_run_is_resumed_and_a_cut_line_is_computed_again(run, data, tmp_path):
    options = ["--data", str(data), "--out", str(tmp_path), "--quick", "--methods", "Baseline,Temp"]
    run("nsl_kdd", *options, "--bases", "LR")
    log = tmp_path / "quick" / "nsl_kdd.jsonl"
    first, second = log.read_text().splitlines()
    forged = json.dumps({**json.loads(first), "huc": 0.125})
    log.write_text(forged + "\n" + second[:20] + "\n")
    run("nsl_kdd", *options, "--bases", "LR,GNB")
    table = pd.read_csv(tmp_path / "quick" / "nsl_kdd.csv")
    kept = table[(table["base"] == "LR") & (table["metric"] == "huc")].set_index("method")["mean"]
    assert kept["Baseline"] == 0.125
    assert kept["Temp"] == pytest.approx(json.loads(second)["huc"], rel=1e-5)
    assert set(table["base"]) == {"pooled", "LR", "GNB"}


@pytest.mark.slow
def test_all_six_base_predictors_run_in_two_processes(run, data, tmp_path):
    options = ["--data", str(data), "--out", str(tmp_path), "--quick", "--methods", "Baseline"]
    run("nbaiot", *options, "--jobs", "2")
    table = pd.read_csv(tmp_path / "quick" / "nbaiot.csv")
    assert set(table["base"]) == {"pooled", "LR", "GNB", "DT", "RF", "XGB", "MLP"}


def test_without_xgboost_the_command_to_install_it_is_shown(experiments, monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(SystemExit, match="pip install xgboost, or leave it out: --bases LR"):
        experiments.predictors.make_predictor("XGB", 0)


def test_a_missing_file_is_named(run, tmp_path):
    with pytest.raises(SystemExit, match=r"massive_en\.parquet is not in the folder"):
        run("massive", "--data", str(tmp_path), "--out", str(tmp_path))
    with pytest.raises(SystemExit, match=r"folder that holds massive_en\.parquet"):
        run("massive")


def test_an_unknown_method_is_refused_with_the_choices(run, data):
    with pytest.raises(SystemExit, match="--methods must be among Baseline, UC-B"):
        run("nsl_kdd", "--data", str(data), "--methods", "HUC")


@pytest.mark.slow
def test_the_toy_experiment_agrees_with_the_paper_on_a_few_repetitions(tmp_path):
    command = [sys.executable, str(FOLDER / "run.py"), "toy", "--out", str(tmp_path)]
    command += ["--sizes", "250", "5000", "--repetitions", "12"]
    subprocess.run(command, capture_output=True, check=True, timeout=600)
    folder = tmp_path / "full"
    table = pd.read_csv(folder / "toy.csv").set_index(["metric", "method", "n"])
    assert (table["standard_errors"].abs() < 4).all()
    assert table.loc[("huc", "UC-Boost", 5000), "mean"] > 0.1
    assert table.loc[("huc", "HUC-Boost", 5000), "mean"] < 0.01
    assert (folder / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "toy.svg").read_text()
    assert "| HUC | HUC-Boost | 5,000 |" in (folder / "toy.md").read_text()


def test_the_toy_updates_are_those_of_the_formulas(experiments):
    toy = experiments.toy
    start = toy.random_prediction(np.random.default_rng(0))
    counts = np.random.default_rng(1).multinomial(1_000, toy.ETA)
    p, share = start.copy(), counts / counts.sum()
    for _ in range(100):
        values = [utility.values(p[None, :], tree=toy.TREE)[0] for utility in toy.UTILITIES]
        gaps = [u - p @ u for u in values]
        moments = [share @ h for h in gaps]
        worst = int(np.argmax(np.abs(moments)))
        if abs(moments[worst]) <= 1e-10:
            break
        h = gaps[worst]
        p = p * np.exp(moments[worst] / (np.ptp(h) ** 2 / 4) * h)
        p /= p.sum()
    np.testing.assert_allclose(toy.correct("UC-Boost", start, counts), p, atol=1e-9)


def test_the_toy_population_errors_are_exact(experiments):
    toy = experiments.toy
    assert toy.population(toy.ETA) == pytest.approx((0, 0), abs=1e-12)
    assert [len(u.relevant_branches(toy.TREE)) for u in toy.UTILITIES] == [3, 4, 5]


def test_the_macro_auc_counts_only_classes_with_both_kinds_of_rows(experiments):
    p = np.array([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.3, 0.4, 0.3]])
    codes = np.array([0, 1, 1, 0])
    pairs = [(p[i, y] > p[j, y]) for y in (0, 1) for i in range(4) for j in range(4)
             if codes[i] == y and codes[j] != y]  # fmt: skip
    assert experiments.scoring.macro_auc(p, codes) == pytest.approx(np.mean(pairs))


def test_splits_have_the_papers_sizes_and_share_no_rows(experiments):
    labels = np.repeat(["a", "b", "c"], [3_000, 1_900, 100])
    sizes = experiments.tabular.SUPPORT2_SIZES
    parts = experiments.problem.stratified_parts(labels, sizes, seed=3)
    assert [part.size for part in parts] == [2_250, 1_001, 750, 999]
    assert np.unique(np.concatenate(parts)).size == 5_000
    for part in parts:
        assert (labels[part] == "c").sum() == pytest.approx(part.size / 50, abs=1)


def test_support2_uses_thirty_inputs_and_no_outcome(experiments):
    table = experiments.tabular
    used = [*table.SUPPORT2_NUMBERS, *table.SUPPORT2_CATEGORIES]
    assert (len(table.SUPPORT2_NUMBERS), len(table.SUPPORT2_CATEGORIES)) == (24, 6)
    assert not set(used) & set(table.SUPPORT2_EXCLUDED)
    assert len(used) + len(table.SUPPORT2_EXCLUDED) == 48


def test_the_papers_tables_are_complete(experiments):
    paper = pd.read_csv(FOLDER / "paper_tables.csv")
    pooled = paper[paper["base"] == "pooled"]
    assert (pooled.groupby("data").size() == 50).all()
    assert set(paper["method"]) == set(experiments.methods.METHODS[:10])
    best = paper.query("data == 'support2' and base == 'pooled' and metric == 'huc'")
    assert best.set_index("method")["mean"].idxmin() == "Vec->HUC"
