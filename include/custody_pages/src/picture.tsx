// The picture of a lineage. What it shows is in the table, too.

import {
  Background,
  Controls,
  Handle,
  MarkerType,
  Position,
  ReactFlow,
  type Edge,
  type Node,
  type NodeProps,
  type ReactFlowInstance,
} from "@xyflow/react";
import { useEffect, useLayoutEffect, useRef, useState, type ReactNode } from "react";
import type { LineageNode } from "./documents.ts";
import { Expander, type Expansion } from "./expander.tsx";
import { titleOf, type Drawn } from "./graph.ts";
import { HEIGHT, placesOf, WIDTH, type Places } from "./layout.ts";
import { absolute } from "./moments.ts";
import { Outline } from "./outline.tsx";
import { TEXTS } from "./texts.ts";
import "@xyflow/react/dist/style.css";

type FlowFileNode = Node<{ node: LineageNode; look: string; expansion: Expansion }, "flowfile">;

interface Laid {
  drawn: Drawn;
  places: Places;
  /** Counts the pictures that are looked at anew. */
  round: number;
  /** How far everything has to be moved so that what was expanded stays where it is. */
  shift: { x: number; y: number };
}

/** Up to so many FlowFiles are all in sight at first; of more, the start is. */
const ALL_IN_SIGHT = 30;
const TYPES = { flowfile: FlowFile };
const LEGEND = ["FLOWFILE", "RUN", "JOB", "DATASET"];
const texts = TEXTS.lineage;

export default function Picture({
  drawn,
  roots,
  chosen,
  onWay,
  faded,
  anchor,
  expansionOf,
  choose,
}: {
  drawn: Drawn;
  roots: string[];
  chosen: string | null;
  onWay: string[];
  /** Whether what did not fail is shown only as the way to what did. */
  faded: boolean;
  /** What was expanded or folded last: it stays where it is. */
  anchor: string | null;
  expansionOf: (node: LineageNode) => Expansion;
  choose: (uuid: string) => void;
}): ReactNode {
  const [laid, setLaid] = useState<Laid | null>(null);
  const [hasFailed, fail] = useState(false);
  const flow = useRef<ReactFlowInstance<FlowFileNode, Edge> | null>(null);
  const held = useRef(anchor);
  held.current = anchor;
  useEffect(() => {
    let isCurrent = true;
    placesOf(drawn, () => isCurrent).then(
      (places) => isCurrent && places && setLaid((before) => laidAfter(before, drawn, places, held.current)),
      () => isCurrent && fail(true),
    );
    return () => {
      isCurrent = false;
    };
  }, [drawn]);
  useLayoutEffect(() => {
    if (!laid || !flow.current || (laid.shift.x === 0 && laid.shift.y === 0)) return;
    const { x, y, zoom } = flow.current.getViewport();
    flow.current.setViewport({ x: x + laid.shift.x * zoom, y: y + laid.shift.y * zoom, zoom });
  }, [laid]);
  if (hasFailed) return <p role="alert">{texts.drawFailed}</p>;
  if (!laid) return <p className="picture">{texts.drawing}</p>;
  const nodes: FlowFileNode[] = laid.drawn.nodes.map((node) => ({
    id: node.uuid,
    type: "flowfile",
    position: laid.places.get(node.uuid) ?? { x: 0, y: 0 },
    width: WIDTH,
    height: HEIGHT,
    selected: node.uuid === chosen,
    ariaLabel: `${texts.kinds[node.kind] ?? node.kind} ${titleOf(node)}`,
    data: { node, look: lookOf(node, roots, onWay, faded), expansion: expansionOf(node) },
  }));
  const edges: Edge[] = laid.drawn.edges.map(({ from, to }) => ({
    id: `${from} ${to}`,
    source: from,
    target: to,
    focusable: false,
    animated: false,
    markerEnd: { type: MarkerType.ArrowClosed, width: 18, height: 18 },
  }));
  return (
    <>
      <div className="picture">
        <ReactFlow
          // Another picture is looked at anew.
          key={laid.round}
          nodes={nodes}
          edges={edges}
          nodeTypes={TYPES}
          colorMode={isDark() ? "dark" : "light"}
          onInit={(instance) => {
            flow.current = instance;
          }}
          fitView
          fitViewOptions={{ nodes: inSight(nodes), maxZoom: 1 }}
          minZoom={0.05}
          nodesDraggable={false}
          nodesConnectable={false}
          // A key leads from FlowFile to FlowFile; what joins them stands in the table.
          edgesFocusable={false}
          onlyRenderVisibleElements
          // The page scrolls; the picture is moved by a drag and enlarged by its buttons or with a key held.
          zoomOnScroll={false}
          preventScrolling={false}
          onNodeClick={(_, node) => choose(node.id)}
          onSelectionChange={({ nodes: [first] }) => first && first.id !== chosen && choose(first.id)}
          proOptions={{ hideAttribution: true }}
        >
          <Background />
          <Controls showInteractive={false} />
        </ReactFlow>
      </div>
      <Legend />
    </>
  );
}

function laidAfter(before: Laid | null, drawn: Drawn, places: Places, anchor: string | null): Laid {
  const [was, is] = anchor === null ? [] : [before?.places.get(anchor), places.get(anchor)];
  if (before && was && is) return { drawn, places, round: before.round, shift: { x: was.x - is.x, y: was.y - is.y } };
  return { drawn, places, round: (before?.round ?? 0) + 1, shift: { x: 0, y: 0 } };
}

function Legend(): ReactNode {
  return (
    <ul className="legend" aria-label={texts.legend}>
      {LEGEND.map((kind) => (
        <li key={kind}>
          <Outline kind={kind} isSmall /> {texts.kinds[kind]}
        </li>
      ))}
      <li>{texts.legendStart}</li>
      <li>{texts.legendUnknown}</li>
      <li>{texts.legendFailed}</li>
    </ul>
  );
}

function inSight(nodes: FlowFileNode[]): FlowFileNode[] {
  return nodes.length > ALL_IN_SIGHT ? nodes.slice(0, 1) : nodes;
}

function isDark(): boolean {
  const { theme } = document.documentElement.dataset;
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

function lookOf(node: LineageNode, roots: string[], onWay: string[], faded: boolean): string {
  const looks = [];
  if (roots.includes(node.uuid)) looks.push("root");
  else if (faded && !node.failed) looks.push("faint");
  if (onWay.includes(node.uuid)) looks.push("on-way");
  if (node.failed) looks.push("failed");
  if (node.kind === "UNKNOWN") looks.push("unknown");
  return looks.join(" ");
}

function FlowFile({ data: { node, look, expansion } }: NodeProps<FlowFileNode>): ReactNode {
  const first = node.events[0]?.event;
  const where = node.namespace ?? (first && (first.component_name ?? first.component_id));
  const said = node.events.map(({ event }) => event.event_type).join(", ") || (node.kind === "UNKNOWN" && texts.unknown);
  return (
    <div className={`flowfile ${look}`} title={node.uuid}>
      <Outline kind={node.kind} look={look} />
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <b>{titleOf(node)}</b>
      <span>
        {texts.kinds[node.kind] ?? node.kind}
        {said && ` · ${said}`}
      </span>
      <span>{where}</span>
      <span>
        {node.failed && `${texts.failedMark} `}
        {first && absolute(first.event_time)}
      </span>
      {/* Keys that are pressed on it are none for the node below. */}
      <div className="expander nodrag nopan nokey">
        <Expander node={node} expansion={expansion} isSmall />
      </div>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </div>
  );
}
