"""The same policies inside a running vLLM: scheduler, engine, calibration, serving."""
