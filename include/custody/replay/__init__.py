"""Room `replay`: events whose FlowFiles are sent again: which can be, the plan of many, and its run, each once."""

from custody.replay.refusals import Refusal, RefusalCode
from custody.replay.replay_plan import PlannedReplay, ReplayPlan, make_plan, read_plan, save_plan
from custody.replay.replay_run import (
    ReplayCheck,
    ReplayReport,
    ReplaySources,
    check_plan,
    login_name,
    replay_one,
    run_plan,
)
from custody.replay.replayed_flowfile import Replay, ReplayJudge

__all__ = [
    "PlannedReplay",
    "Refusal",
    "RefusalCode",
    "Replay",
    "ReplayCheck",
    "ReplayJudge",
    "ReplayPlan",
    "ReplayReport",
    "ReplaySources",
    "check_plan",
    "login_name",
    "make_plan",
    "read_plan",
    "replay_one",
    "run_plan",
    "save_plan",
]
