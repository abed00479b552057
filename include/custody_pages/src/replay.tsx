// Replay of the events that a query finds, or of one: the plan, its reasons, and its run.

import { type ReactNode } from "react";
import { ownParameters } from "./address.ts";
import { Frame, start } from "./frame.tsx";
import { AsOfField, Question, WriterField } from "./question.tsx";
import { Replay, type ReplayQuestion } from "./replay_plan.tsx";
import { TEXTS } from "./texts.ts";

const texts = TEXTS.replay;
const parameters = ownParameters();
const query = parameters.get("q");
const id = parameters.get("event");
const writer = parameters.get("writer");
const asOf = parameters.get("as_of");
const question: ReplayQuestion = {
  ...(id !== null ? { event_ids: [Number(id)] } : { query: query ?? "" }),
  writer,
  as_of: asOf,
};

function ReplayPage(): ReactNode {
  return (
    <Frame page="replay" title={texts.title}>
      <Question>
        <label className="grows">
          {TEXTS.search.query}
          <input name="q" defaultValue={query ?? ""} size={40} />
        </label>
        <WriterField />
        <AsOfField />
        <button type="submit">{texts.choose}</button>
      </Question>
      <p>{id !== null ? texts.ofEvent(writer ?? "", id) : query ? texts.ofQuery(query) : parameters.has("plan") ? "" : texts.ofAll}</p>
      <Replay question={question} />
    </Frame>
  );
}

start(<ReplayPage />);
