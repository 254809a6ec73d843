"""Infos of a vector environment, in the form that Gymnasium's `SyncVectorEnv` gives those of single ones."""

from typing import Any

import numpy as np

from pacer_gym.envs.spaces import MASKS, ORDERS
from pacer_gym.envs.vector_kernels import ATTAINMENT, MASK, MET, MET_TERM, MISSED, MISSED_TERM, NOW_S


def _mask_pairs() -> np.ndarray:
    orders = np.ones(len(ORDERS), np.int8)
    orders.setflags(write=False)
    pairs = np.empty(len(MASKS), object)
    for k, mask in enumerate(MASKS):
        pairs[k] = (mask, orders)
    return pairs


_MASK_PAIRS = _mask_pairs()


def batch_infos(
    f8: np.ndarray,
    i8: np.ndarray,
    told: np.ndarray | None,
    stepped: np.ndarray | None,
    action: str,
    views: np.ndarray | None,
) -> dict[str, Any]:
    """Infos of the lanes of `told`, zeros for others.

    Parameters
    ----------
    f8, i8 : (6, n_lanes) and (4, n_lanes) np.ndarray
        Results in the rows of `vector_kernels`; the infos are views of them.
    told : (n_lanes,) np.ndarray of bool, optional
        Lanes whose infos are wanted, at least one; all by default.
    stepped : (n_lanes,) np.ndarray of bool, optional
        Lanes that made a step, all by default; one that was reset has no reward.
    action : {"budget", "budget+order", "continuous"}
    views : (n_lanes,) np.ndarray of object, optional
        What a policy would see, None for lanes that are not told.

    Returns
    -------
    dict
        Each key with its values, and with an underscore before it which lanes have one.
    """
    everyone = np.ones(f8.shape[1], np.bool_)
    told_or_all = everyone if told is None else told.copy()
    infos: dict[str, Any] = {}
    if action != "continuous":
        masks = (MASKS if action == "budget" else _MASK_PAIRS).take(i8[MASK], axis=0)
        if told is not None:
            masks[~told] = 0 if action == "budget" else None
        infos["action_mask"], infos["_action_mask"] = masks, told_or_all
    if told is not None:
        f8[:, ~told] = 0.0
        i8[:, ~told] = 0
    infos |= {"now_s": f8[NOW_S], "met": i8[MET], "missed": i8[MISSED], "attainment": f8[ATTAINMENT]}
    infos |= {"_now_s": told_or_all, "_met": told_or_all, "_missed": told_or_all, "_attainment": told_or_all}
    if views is not None:
        infos["view"], infos["_view"] = views, told_or_all
    if stepped is None or stepped.any():
        terms = {"met": f8[MET_TERM], "missed": f8[MISSED_TERM]}
        if stepped is not None:
            terms = {key: np.where(stepped, values, 0.0) for key, values in terms.items()}
        rewarded = everyone if stepped is None else stepped.copy()
        infos["reward_terms"] = {**terms, "_met": rewarded, "_missed": rewarded}
        infos["_reward_terms"] = rewarded
    return infos


def episode_stats_info(returns: np.ndarray, lengths: np.ndarray, ended: np.ndarray) -> dict[str, Any]:
    """Return and length of the episodes that ended, as `RecordEpisodeStatistics` tells them."""
    episode = {
        "r": np.where(ended, returns, 0.0),
        "_r": ended.copy(),
        "l": np.where(ended, lengths, 0),
        "_l": ended.copy(),
    }
    return {"episode": episode, "_episode": ended.copy()}
