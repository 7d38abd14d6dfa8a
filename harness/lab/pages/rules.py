"""reports/results/engine-edges.md: rule x engine, with what differs, from what cases/rules state. Nothing is played: `kvcts
conformance --rules` does that."""

from __future__ import annotations

from collections import defaultdict

from tables import documents, table

LEAD = """# Engine edge behaviour

What each engine answers at the edges of its API, measured through the transport ABI with the plug-in's own checks turned off
where it has any. `kvcts conformance --rules` tests all of it again and reports CHANGED RULE where an answer differs from
`cases/rules`. Answers are those of `harness/engines/transport/kvcts_transport.h`. *Pending*: neither done nor failed when
time was up. *Arrived*, *untouched*, *partly*: the bytes at their destination. Where several answers are listed, timing
decides. One rule with one engine: `kvcts conformance --rules truncated-blob --engine nixl-tcp`; `--runs 20` counts how often
each answer comes.
"""


def stated(rule: dict) -> dict[str, str]:
    """Engine -> observation, in the words of the table."""
    return {
        engine: " *or* ".join(map(str, seen if isinstance(seen, list) else [seen]))
        for engine, seen in rule["expect"].items()
    }


def seconds(milliseconds_text: str) -> float:
    number, unit = milliseconds_text.rstrip("ms"), milliseconds_text[len(milliseconds_text.rstrip("ms")) :]
    return float(number) / (1000 if unit == "ms" else 1)


def section(rule: dict, engines: list[dict]) -> str:
    seen = stated(rule)
    known = f" ({rule['known_as']})" if rule.get("known_as") else ""
    rows = [
        [f"`{e['engine']}`", e.get("environment", {}).get("KVCTS_ENGINE_PACKAGE", "as installed"), seen[e["engine"]]]
        for e in engines
        if e["engine"] in seen
    ]
    out = [f"## {rule['rule']}\n", f"{rule['title']}{known}\n", table(["engine", "version", "what is seen"], rows)]
    if rule.get("promised"):
        by_time = defaultdict(list)
        for engine, time in rule["promised"].items():
            if engine in seen:
                by_time[seconds(str(time))].append(f"`{engine}`")
        times = ", ".join(f"{time:g} s for {', '.join(who)}" for time, who in sorted(by_time.items()))
        out.append(f"The step `{rule['timed']}` takes at most {times}. {rule.get('promise', '')}\n")
    if rule.get("explain"):
        out.append(rule["explain"].rstrip() + "\n")
    if rule.get("advice"):
        out.append("**For connectors:** " + rule["advice"].rstrip() + "\n")
    return "\n".join(out)


def page(figures: dict) -> str:
    rules, engines = documents("rules"), sorted(documents("engines"), key=lambda engine: engine["engine"])
    unlike = [rule for rule in rules if len(set(stated(rule).values())) > 1]
    asked = sum(any(e["engine"] in rule["expect"] for rule in rules) for e in engines)
    figures |= {"rules": len(rules), "rules.engines": asked, "rules.unlike": len(unlike)}
    lead = (
        f"{len(rules)} rules, {asked} engines; {len(unlike)} rules differ between engines or versions: a connector "
        f"must not rely on these.\n"
    )
    listed = "".join(f"- [{rule['title']}](#{rule['rule']})\n" for rule in unlike)
    return "\n".join([LEAD, lead + listed, *(section(rule, engines) for rule in rules)])
