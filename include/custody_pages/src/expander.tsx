// The button that shows what lies behind a bound of a node, or takes that back.

import type { ReactNode } from "react";
import type { LineageNode } from "./documents.ts";
import { countOf, titleOf, type Behind } from "./graph.ts";
import { TEXTS } from "./texts.ts";

const texts = TEXTS.lineage;

export interface Expansion {
  isExpanded: boolean;
  /** What lies behind its bound; nothing where that was not counted. */
  behind: Behind | undefined;
  /** `pressed` is the button: what is around it stays where it is. */
  turn: (uuid: string, isExpanded: boolean, pressed: Element) => void;
}

/** One button for both, so that whoever pressed it still has it. */
export function Expander({ node, expansion, isSmall = false }: { node: LineageNode; expansion: Expansion; isSmall?: boolean }): ReactNode {
  const { isExpanded, behind, turn } = expansion;
  if (!isExpanded && !node.cut) return null;
  if (!isExpanded && behind?.isAll && behind.events === 0) return isSmall ? null : <span className="quiet">{texts.noMore}</span>;
  const count = countOf(behind);
  const what = texts.expand(count);
  return (
    <button
      type="button"
      aria-expanded={isExpanded}
      aria-label={isExpanded ? texts.foldOf(titleOf(node)) : texts.expandOf(what, titleOf(node))}
      onClick={(event) => {
        // Neither chooses the node that it stands in.
        event.stopPropagation();
        turn(node.uuid, !isExpanded, event.currentTarget);
      }}
      onKeyDown={(event) => event.stopPropagation()}
    >
      {isExpanded ? (isSmall ? "−" : texts.fold) : isSmall ? count : what}
    </button>
  );
}
