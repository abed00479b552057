// The outline of a node by its kind: shapes tell kinds apart where colours do not.

import type { ReactNode } from "react";
import { HEIGHT, WIDTH } from "./layout.ts";

const [LEFT, TOP, RIGHT, BOTTOM] = [2, 2, WIDTH - 2, HEIGHT - 2];
const SLANT = 14;
const LID = 7;

export function Outline({ kind, look = "", isSmall = false }: { kind: string; look?: string; isSmall?: boolean }): ReactNode {
  const size = isSmall ? { width: WIDTH / 4, height: HEIGHT / 3 } : { width: WIDTH, height: HEIGHT };
  return (
    <svg className={`outline ${look}`} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true" {...size}>
      <Shape kind={kind} />
    </svg>
  );
}

function Shape({ kind }: { kind: string }): ReactNode {
  const middle = HEIGHT / 2;
  if (kind === "RUN")
    return <polygon points={`${LEFT},${middle} ${LEFT + SLANT},${TOP} ${RIGHT - SLANT},${TOP} ${RIGHT},${middle} ${RIGHT - SLANT},${BOTTOM} ${LEFT + SLANT},${BOTTOM}`} />;
  if (kind === "JOB") return <polygon points={`${LEFT + SLANT},${TOP} ${RIGHT},${TOP} ${RIGHT - SLANT},${BOTTOM} ${LEFT},${BOTTOM}`} />;
  if (kind === "DATASET") {
    const [half, top, bottom] = [(RIGHT - LEFT) / 2, TOP + LID, BOTTOM - LID];
    const lid = `M${LEFT} ${top} A${half} ${LID} 0 0 1 ${RIGHT} ${top} A${half} ${LID} 0 0 1 ${LEFT} ${top}`;
    return <path d={`${lid} V${bottom} A${half} ${LID} 0 0 0 ${RIGHT} ${bottom} V${top}`} />;
  }
  return <rect x={LEFT} y={TOP} width={RIGHT - LEFT} height={BOTTOM - TOP} rx={8} />;
}
