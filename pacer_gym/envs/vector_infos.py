"""Infos of a vector environment, in the form that Gymnasium's `SyncVectorEnv` gives those of single ones."""

from typing import Any

import numpy as np

from pacer_gym.envs.spaces import MASKS, ORDERS
from pacer_gym.envs.vector_kernels import Results


def _mask_pairs() -> np.ndarray:
    orders = np.ones(len(ORDERS), np.int8)
    orders.setflags(write=False)
    pairs = np.empty(len(MASKS), object)
    for k, mask in enumerate(MASKS):
        pairs[k] = (mask, orders)
    return pairs


_MASK_PAIRS = _mask_pairs()


def batch_infos(
    results: Results, told: np.ndarray, stepped: np.ndarray, action: str, views: np.ndarray | None
) -> dict[str, Any]:
    """Infos of the lanes of `told`, zeros for others.

    Parameters
    ----------
    results : Results
    told : (n_lanes,) np.ndarray of bool
        Lanes whose infos are wanted, at least one.
    stepped : (n_lanes,) np.ndarray of bool
        Lanes that made a step; one that was reset has no reward.
    action : {"budget", "budget+order", "continuous"}
    views : (n_lanes,) np.ndarray of object, optional
        What a policy would see, None for lanes that are not told.

    Returns
    -------
    dict
        Each key with its values, and with an underscore before it which lanes have one.
    """
    everyone = bool(told.all())
    infos: dict[str, Any] = {}
    for key, values in (
        ("now_s", results.now_s),
        ("met", results.met),
        ("missed", results.missed),
        ("attainment", results.attainment),
    ):
        infos[key] = values.copy() if everyone else np.where(told, values, values.dtype.type(0))
        infos[f"_{key}"] = told.copy()
    if action == "budget":
        masks = MASKS[results.mask]
        if not everyone:
            masks[~told] = 0
    elif action == "budget+order":
        masks = _MASK_PAIRS[results.mask]
        if not everyone:
            masks[~told] = None
    if action != "continuous":
        infos["action_mask"], infos["_action_mask"] = masks, told.copy()
    if views is not None:
        infos["view"], infos["_view"] = views, told.copy()
    if stepped.any():
        every_term = bool(stepped.all())
        terms = {"met": results.met_term, "missed": results.missed_term}
        infos["reward_terms"] = {}
        for key, values in terms.items():
            infos["reward_terms"][key] = values.copy() if every_term else np.where(stepped, values, 0.0)
            infos["reward_terms"][f"_{key}"] = stepped.copy()
        infos["_reward_terms"] = stepped.copy()
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
