"""What the reasons of decisions mean, in a person's words."""

from __future__ import annotations

from prompt_rag.domain import Reason

WORDS = {
    Reason.CONFIDENT: "a note is near enough and stands out",
    Reason.EMPTY: "there is no text",
    Reason.MACHINE_PROMPT: "no person typed this",
    Reason.COMMAND: "this is a command for the agent, no question",
    Reason.CONTENTLESS: "there is nothing in it to look up",
    Reason.SWITCHED_OFF: "the prompt says that it wants no notes",
    Reason.PAUSED: "the hook is paused; `prompt-rag pause off` ends that",
    Reason.NO_NOTES: "there is no note to show",
    Reason.TOO_FAR: "no note is near enough",
    Reason.GAP_TOO_SMALL: "several notes are equally near, so none stands out",
    Reason.LOW_PROBABILITY: "the nearest note is not likely enough to help",
    Reason.UNCALIBRATED: "this model has no thresholds; `prompt-rag tune --apply` fits them",
    Reason.ALREADY_SHOWN: "this session has been shown the notes that fit",
    Reason.DUPLICATE_CALL: "the same prompt was answered a moment ago; is the hook set up twice?",
    Reason.INDEX_MISSING: "there is no index; `prompt-rag rebuild` makes one",
    Reason.INDEX_INCOMPATIBLE: "the index is of another model or version; `prompt-rag rebuild`",
    Reason.INDEX_DAMAGED: "the index is damaged; `prompt-rag rebuild` makes it anew",
    Reason.MODEL_MISSING: "the model is not here; `prompt-rag model verify` says what to do",
    Reason.DEADLINE: "there was not enough time",
    Reason.DAEMON_UNAVAILABLE: "the resident process did not answer",
    Reason.BUSY: "too many prompts came at once",
    Reason.BAD_INPUT: "the host sent what is no prompt",
    Reason.BAD_CONFIG: "the settings have a mistake; `prompt-rag config show` names it",
    Reason.ERROR: "something unexpected went wrong",
}
