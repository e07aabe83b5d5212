package kubescheduler

import (
	"context"
	"errors"
	"sync"

	pumice "github.com/pumice-scheduler/pumice/clients/go"

	fwk "k8s.io/kube-scheduler/framework"
)

// rescoring asks for scores when they are wanted. For a pod that equals the one before, kube-scheduler shows PreScore all nodes and
// then wants the scores of one, on which the pod before went; so the request is about that node. If scores depend on the other nodes, or if
// those of another node are wanted, a second request is about all.
type rescoring struct {
	plugin *Plugin
	cycle  *cycle
	nodes  []fwk.NodeInfo

	first, second sync.Once
	// node is the node of the first request.
	node string
	one  *scoring
	all  *scoring
	// failed and failedAll are the errors of the two requests.
	failed, failedAll error
}

// ask returns scores that have those of this node.
func (later *rescoring) ask(ctx context.Context, info fwk.NodeInfo) (*scoring, error) {
	later.first.Do(func() {
		later.node = info.Node().Name
		later.one, later.failed = later.scores(ctx, []fwk.NodeInfo{info})
	})
	if later.failed != nil || later.node == info.Node().Name && later.one.item.GetIndependent() {
		return later.one, later.failed
	}
	later.second.Do(func() { later.all, later.failedAll = later.scores(ctx, later.nodes) })
	return later.all, later.failedAll
}

// scores sends one request.
func (later *rescoring) scores(ctx context.Context, nodes []fwk.NodeInfo) (*scoring, error) {
	ctx, cancel := context.WithDeadline(ctx, later.cycle.until)
	defer cancel()
	made, err := later.plugin.ask(ctx, later.cycle, nodes)
	if err == nil && made.item.GetProblem() != nil {
		err = errors.New(made.item.GetProblem().GetMessage())
	}
	if err == nil {
		err = later.plugin.addOwnScores(made)
	}
	if err != nil {
		replies.WithLabelValues(string(pumice.CallScore), "error").Inc()
		return nil, err
	}
	replies.WithLabelValues(string(pumice.CallScore), pumice.OriginService.String()).Inc()
	return made, nil
}
