// The picture of a lineage. What it shows is in the table, too.

import { Background, Controls, Handle, MarkerType, Position, ReactFlow, type Edge, type Node, type NodeProps } from "@xyflow/react";
import { useEffect, useState, type ReactNode } from "react";
import type { LineageNode } from "./documents.ts";
import { titleOf, type Drawn } from "./graph.ts";
import { HEIGHT, placesOf, WIDTH, type Places } from "./layout.ts";
import { absolute } from "./moments.ts";
import { TEXTS } from "./texts.ts";
import "@xyflow/react/dist/style.css";

type FlowFileNode = Node<{ node: LineageNode; look: string }, "flowfile">;

/** Up to so many FlowFiles are all in sight at first; of more, the start is. */
const ALL_IN_SIGHT = 30;
const TYPES = { flowfile: FlowFile };

export default function Picture({
  drawn,
  roots,
  chosen,
  onWay,
  choose,
}: {
  drawn: Drawn;
  roots: string[];
  chosen: string | null;
  onWay: string[];
  choose: (uuid: string) => void;
}): ReactNode {
  const [laid, setLaid] = useState<{ drawn: Drawn; places: Places; round: number } | null>(null);
  const [hasFailed, fail] = useState(false);
  useEffect(() => {
    let isCurrent = true;
    placesOf(drawn, () => isCurrent).then(
      (places) => isCurrent && places && setLaid((before) => ({ drawn, places, round: (before?.round ?? 0) + 1 })),
      () => isCurrent && fail(true),
    );
    return () => {
      isCurrent = false;
    };
  }, [drawn]);
  if (hasFailed) return <p role="alert">{TEXTS.lineage.drawFailed}</p>;
  if (!laid) return <p className="picture">{TEXTS.lineage.drawing}</p>;
  const nodes: FlowFileNode[] = laid.drawn.nodes.map((node) => ({
    id: node.uuid,
    type: "flowfile",
    position: laid.places.get(node.uuid) ?? { x: 0, y: 0 },
    width: WIDTH,
    height: HEIGHT,
    selected: node.uuid === chosen,
    ariaLabel: titleOf(node),
    data: { node, look: lookOf(node, roots, onWay) },
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
    <div className="picture">
      <ReactFlow
        // Another picture is looked at anew.
        key={laid.round}
        nodes={nodes}
        edges={edges}
        nodeTypes={TYPES}
        colorMode={isDark() ? "dark" : "light"}
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
  );
}

function inSight(nodes: FlowFileNode[]): FlowFileNode[] {
  return nodes.length > ALL_IN_SIGHT ? nodes.slice(0, 1) : nodes;
}

function isDark(): boolean {
  const { theme } = document.documentElement.dataset;
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

function lookOf(node: LineageNode, roots: string[], onWay: string[]): string {
  const looks = ["flowfile"];
  if (roots.includes(node.uuid)) looks.push("root");
  if (onWay.includes(node.uuid)) looks.push("on-way");
  if (node.kind !== "FLOWFILE") looks.push("unknown");
  return looks.join(" ");
}

function FlowFile({ data: { node, look } }: NodeProps<FlowFileNode>): ReactNode {
  const first = node.events[0]?.event;
  return (
    <div className={look} title={node.uuid}>
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <b>{titleOf(node)}</b>
      <span>{node.events.map(({ event }) => event.event_type).join(", ") || TEXTS.lineage.unknown}</span>
      <span>{first && (first.component_name ?? first.component_id)}</span>
      <span>
        {first && absolute(first.event_time)} {node.cut && "+"}
      </span>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </div>
  );
}
