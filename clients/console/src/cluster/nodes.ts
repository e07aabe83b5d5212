/** Nodes as cells of the heat map: what is used, and what marks them. */

import { amountsOf, quantitiesOf } from '../amounts';
import { groupBy } from '../lists';
import type { NodeCard, NodeStatus } from '../protocol';

/** What keeps new tasks from a node, or makes its numbers doubtful. */
export type NodeState = 'ready' | 'stale' | 'cordoned' | 'not ready' | 'invalid';
export const NODE_STATES: NodeState[] = ['ready', 'stale', 'cordoned', 'not ready', 'invalid'];

export interface NodeCell {
  name: string;
  /** Model of the devices or the cards, such as `NVIDIA-A100`; `no cards` without any. */
  kind: string;
  state: NodeState;
  /** Used parts of the allocatable amounts, from 0. Undefined: the node has none of it. */
  used: { cpu?: number | undefined; memory?: number | undefined; cards?: number | undefined };
  cards: number;
  freeCards: number;
  /** Free cards whose node has no cpu, memory or pods left, or takes no new tasks. */
  strandedCards: number;
  status: NodeStatus;
}

/** Mark in the timeline of the browser: a list of nodes has arrived. */
export const LISTED = 'pumice:nodes listed';

/** Value that colours the cells. */
export type Measure = 'cards' | 'cpu' | 'memory';

/** Cells of all nodes, in the order of the nodes. */
export function cellsOf(nodes: NodeStatus[], staleSources: ReadonlySet<string>): NodeCell[] {
  return nodes.map((status) => cellOf(status, staleSources));
}

/** Resources that count devices, such as `nvidia.com/gpu`, but not their memory or shares of them. */
const DEVICES = /\/.*(gpu|npu|tpu|dcu|mlu|mig-|ascend)/i;
const PARTS_OF_DEVICES = /memory|mem$|cores?$|percent|shared/i;

/** Cards of a node. A policy without quotas of cards derives none, so its devices are read from their labels and amounts. */
function cardsOf({ node, cards }: NodeStatus, total: Map<string, number>): NodeCard[] {
  if (cards?.length) return cards;
  const devices = [...total].filter(([resource, count]) => count > 0 && DEVICES.test(resource) && !PARTS_OF_DEVICES.test(resource));
  return devices.map(([resource, count]) => ({ card: node.labels?.[`${resource}.product`] ?? resource, resource, count: `${Math.floor(count)}` }));
}

function cellOf(status: NodeStatus, staleSources: ReadonlySet<string>): NodeCell {
  const { node } = status;
  const total = quantitiesOf(node.allocatable, node.oversubscription);
  const ownCards = cardsOf(status, total);
  const used = amountsOf(status.used);
  const state = stateOf(status, staleSources);
  const part = (resource: string) => {
    const whole = total.get(resource) ?? 0;
    return whole > 0 ? (used.get(resource) ?? 0) / whole : undefined;
  };
  let cards = 0;
  let freeCards = 0;
  for (const card of ownCards) {
    const count = Number(card.count ?? 0);
    cards += count;
    freeCards += Math.max(0, count - Math.ceil(used.get(card.resource) ?? 0));
  }
  const closed = state === 'cordoned' || state === 'not ready' || state === 'invalid';
  const short = ['cpu', 'memory', 'pods'].some((resource) => (total.get(resource) ?? 0) - (used.get(resource) ?? 0) <= 0);
  return {
    name: node.name,
    kind: node.devices?.model || ownCards[0]?.card || 'no cards',
    state,
    used: { cpu: part('cpu'), memory: part('memory'), cards: cards > 0 ? (cards - freeCards) / cards : undefined },
    cards,
    freeCards,
    strandedCards: closed || short ? freeCards : 0,
    status,
  };
}

function stateOf({ node, source, invalid }: NodeStatus, staleSources: ReadonlySet<string>): NodeState {
  if (invalid?.length) return 'invalid';
  if (node.ready === false) return 'not ready';
  if (node.unschedulable) return 'cordoned';
  return staleSources.has(source ?? '') ? 'stale' : 'ready';
}

export interface NodeSummary {
  nodes: number;
  cards: number;
  freeCards: number;
  strandedCards: number;
  states: Map<NodeState, number>;
}

export function summaryOf(cells: NodeCell[]): NodeSummary {
  const summary: NodeSummary = { nodes: cells.length, cards: 0, freeCards: 0, strandedCards: 0, states: new Map() };
  for (const cell of cells) {
    summary.cards += cell.cards;
    summary.freeCards += cell.freeCards;
    summary.strandedCards += cell.strandedCards;
    summary.states.set(cell.state, (summary.states.get(cell.state) ?? 0) + 1);
  }
  return summary;
}

export interface CellGroup {
  title: string;
  cells: NodeCell[];
}

/** Cells by kind, or by the value of a node label. Groups are sorted by title, the cells of each by kind and name. */
export function groupCells(cells: NodeCell[], label: string): CellGroup[] {
  const groups = groupBy(cells, (cell) => (label ? (cell.status.node.labels?.[label] ?? `without ${label}`) : cell.kind));
  const sorted = [...groups].sort(([one], [other]) => compareNames(one, other));
  return sorted.map(([title, own]) => ({ title, cells: label ? own.sort((a, b) => compareNames(a.kind, b.kind)) : own }));
}

/** Labels with at most 100 values, by which a map is worth reading. */
export function domainLabels(cells: NodeCell[]): string[] {
  const values = new Map<string, Set<string>>();
  for (const { status } of cells) {
    for (const [label, value] of Object.entries(status.node.labels ?? {})) {
      const known = values.get(label) ?? new Set();
      if (known.size <= 100) values.set(label, known.add(value));
    }
  }
  const few = [...values].filter(([, known]) => known.size <= 100);
  return few.map(([label]) => label).sort(compareNames);
}

/** Order of names in which `node-2` is before `node-10`. */
const collator = new Intl.Collator('en', { numeric: true });
const compareNames = (one: string, other: string): number => collator.compare(one, other);
