/** A large cluster: nodes of three kinds in zones, with running pods, cordoned nodes and stranded cards. */

const KINDS = [
  { card: 'NVIDIA-A100', cpu: 64, gpu: 8 },
  { card: 'NVIDIA-H100', cpu: 96, gpu: 8 },
  { card: '', cpu: 32, gpu: 0 },
];

/** Objects of `count` nodes as one list. `shift` moves the load from node to node, so another shift changes most nodes. */
export function largeCluster(count, shift = 0) {
  const items = [{ apiVersion: 'scheduling.volcano.sh/v1beta1', kind: 'Queue', metadata: { name: 'train' }, spec: { weight: 1 }, status: { state: 'Open' } }];
  for (let at = 0; at < count; at += 1) {
    const kind = KINDS[at % KINDS.length];
    items.push(node(at, kind));
    const load = ((at * 7919 + shift * 104_729) % 100) / 100;
    items.push(pod(at, Math.floor(kind.gpu * load), at % 97 === 0 ? kind.cpu : Math.max(1, Math.floor(kind.cpu * load * 0.9))));
  }
  return { apiVersion: 'v1', kind: 'List', items };
}

const nodeName = (at) => `node-${String(at).padStart(5, '0')}`;

function node(at, kind) {
  const labels = { 'topology.kubernetes.io/zone': `zone-${at % 4}`, ...(kind.card ? { 'nvidia.com/gpu.product': kind.card, 'nvidia.com/gpu.count': String(kind.gpu), 'nvidia.com/gpu.memory': '81920' } : {}) };
  const gpus = kind.gpu > 0 ? { 'nvidia.com/gpu': String(kind.gpu) } : {};
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name: nodeName(at), labels },
    spec: at % 131 === 0 ? { unschedulable: true } : {},
    status: { allocatable: { cpu: String(kind.cpu), memory: '512Gi', pods: '110', ...gpus }, conditions: [{ type: 'Ready', status: at % 211 === 0 ? 'False' : 'True' }] },
  };
}

function pod(at, gpus, cpus) {
  const requests = { cpu: String(cpus), memory: `${cpus * 4}Gi`, ...(gpus > 0 ? { 'nvidia.com/gpu': String(gpus) } : {}) };
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `load-${at}`, namespace: 'x', creationTimestamp: '2026-11-20T10:00:00Z' },
    spec: { schedulerName: 'volcano', nodeName: nodeName(at), containers: [{ name: 'c', resources: { requests } }] },
    status: { phase: 'Running' },
  };
}
