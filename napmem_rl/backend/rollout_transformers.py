"""stub"""
def register_rollout() -> None:
    pass
