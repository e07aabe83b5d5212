package pumice

import (
	"math/bits"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

var filtering = decision[*pb.FilterRequest, *pb.FilterResponse]{
	call: CallFilter, send: pb.DecisionServiceClient.Filter,
	against: func(request *pb.FilterRequest) **pb.EvaluationRef { return &request.Against },
	items: func(request *pb.FilterRequest, response *pb.FilterResponse) ([]ItemProblem, error) {
		return itemProblems(response.GetResult(), response.GetResult().GetItems(), len(request.GetTasks()))
	},
	closed: func(request *pb.FilterRequest, reason *pb.Reason) *pb.FilterResponse {
		rejected := &pb.Rejection{Reason: reason, Nodes: request.GetCandidates(), Count: count(request.GetCandidates())}
		return &pb.FilterResponse{Result: &pb.FilterResult{Items: each(request.GetTasks(), func() *pb.FilterItem {
			return &pb.FilterItem{Fit: &pb.NodeSet{}, Rejections: []*pb.Rejection{rejected}}
		})}}
	},
	open: func(request *pb.FilterRequest, _ *pb.Reason) *pb.FilterResponse {
		candidates := request.GetCandidates()
		if candidates == nil {
			return nil
		}
		return &pb.FilterResponse{Result: &pb.FilterResult{Items: each(request.GetTasks(), func() *pb.FilterItem {
			return &pb.FilterItem{Fit: candidates, FitCount: count(candidates)}
		})}}
	},
	abstain: func() *pb.FilterResponse { return &pb.FilterResponse{} },
}

// count is the number of nodes in a set.
func count(nodes *pb.NodeSet) uint32 {
	number := len(nodes.GetNames()) + len(nodes.GetSlots())
	for _, some := range nodes.GetBitmap() {
		number += bits.OnesCount8(some)
	}
	return uint32(number)
}

// each makes one item for each item of a request.
func each[A, I any](asked []A, item func() I) []I {
	items := make([]I, len(asked))
	for at := range items {
		items[at] = item()
	}
	return items
}

var scoring = decision[*pb.ScoreRequest, *pb.ScoreResponse]{
	call: CallScore, send: pb.DecisionServiceClient.Score, prepared: limited,
	against: func(request *pb.ScoreRequest) **pb.EvaluationRef { return &request.Against },
	items: func(request *pb.ScoreRequest, response *pb.ScoreResponse) ([]ItemProblem, error) {
		return itemProblems(response.GetResult(), response.GetResult().GetItems(), len(request.GetTasks()))
	},
	abstain: func() *pb.ScoreResponse { return &pb.ScoreResponse{} },
}

// limited is a request with a limit whose Filter result has samples instead of sets of nodes. The caller's request is not
// changed.
func limited(request *pb.ScoreRequest) *pb.ScoreRequest {
	if request.GetLimit() == 0 || !request.GetWithFilter() || request.GetFilterDetail() != pb.FilterDetail_FILTER_DETAIL_UNSPECIFIED {
		return request
	}
	own := &pb.ScoreRequest{
		Against: request.Against, Tasks: request.Tasks, Candidates: request.Candidates, Plugins: request.Plugins,
		ResourceFit: request.ResourceFit, NodeEncoding: request.NodeEncoding, Samples: request.Samples,
		WithFilter: request.WithFilter, Limit: request.Limit, WithParts: request.WithParts, Ahead: request.Ahead,
		FilterDetail: pb.FilterDetail_FILTER_DETAIL_SAMPLES,
	}
	own.ProtoReflect().SetUnknown(request.ProtoReflect().GetUnknown())
	return own
}

var placing = decision[*pb.PlaceRequest, *pb.PlaceResponse]{
	call: CallPlace, send: pb.DecisionServiceClient.Place,
	against: func(request *pb.PlaceRequest) **pb.EvaluationRef { return &request.Against },
	changes: func(request *pb.PlaceRequest) bool { return request.GetEffect() == pb.PlaceEffect_PLACE_EFFECT_SESSION },
	items: func(request *pb.PlaceRequest, response *pb.PlaceResponse) ([]ItemProblem, error) {
		return itemProblems(response.GetResult(), response.GetResult().GetGroups(), len(request.GetGroups()))
	},
	closed: func(request *pb.PlaceRequest, reason *pb.Reason) *pb.PlaceResponse {
		blockers := []*pb.Rejection{{Reason: reason}}
		groups := each(request.GetGroups(), func() *pb.PlacedGroup {
			return &pb.PlacedGroup{Allocated: &pb.NodeSet{}, Pipelined: &pb.NodeSet{}, Blockers: blockers}
		})
		return &pb.PlaceResponse{Result: &pb.PlaceResult{Groups: groups, Blockers: blockers}}
	},
}

var admitting = decision[*pb.AdmitRequest, *pb.AdmitResponse]{
	call: CallAdmit, send: pb.DecisionServiceClient.Admit,
	against: func(request *pb.AdmitRequest) **pb.EvaluationRef { return &request.Against },
	changes: func(request *pb.AdmitRequest) bool {
		return request.GetMode() == pb.AdmitMode_ADMIT_MODE_TENTATIVE || request.GetMode() == pb.AdmitMode_ADMIT_MODE_CONFIRM
	},
	items: func(request *pb.AdmitRequest, response *pb.AdmitResponse) ([]ItemProblem, error) {
		items := response.GetResult().GetItems()
		asked := len(request.GetItems())
		if asked == 0 {
			// The items of a confirmation in a session may be the jobs that the session kept.
			asked = len(items)
		}
		return itemProblems(response.GetResult(), items, asked)
	},
	closed: func(request *pb.AdmitRequest, reason *pb.Reason) *pb.AdmitResponse {
		return admitAll(request, &pb.AdmitItem{Reasons: []*pb.Reason{reason}})
	},
	open: func(request *pb.AdmitRequest, _ *pb.Reason) *pb.AdmitResponse {
		return admitAll(request, &pb.AdmitItem{Permitted: true})
	},
	abstain: func() *pb.AdmitResponse { return &pb.AdmitResponse{} },
}

func admitAll(request *pb.AdmitRequest, item *pb.AdmitItem) *pb.AdmitResponse {
	items := each(request.GetItems(), func() *pb.AdmitItem {
		return &pb.AdmitItem{Permitted: item.Permitted, Reasons: item.Reasons}
	})
	return &pb.AdmitResponse{Result: &pb.AdmitResult{Items: items}}
}

var ordering = decision[*pb.OrderRequest, *pb.OrderResponse]{
	call: CallOrder, send: pb.DecisionServiceClient.Order,
	against: func(request *pb.OrderRequest) **pb.EvaluationRef { return &request.Against },
	items: func(request *pb.OrderRequest, response *pb.OrderResponse) ([]ItemProblem, error) {
		result := response.GetResult()
		queues, jobs := result.GetQueues(), result.GetJobs()
		found, err := itemProblems(result, queues, rankCount(request.GetQueues(), queues))
		if err != nil {
			return nil, err
		}
		more, err := itemProblems(result, jobs, rankCount(request.GetJobs(), jobs))
		for _, item := range more {
			found = append(found, ItemProblem{Item: len(queues) + item.Item, Problem: item.Problem})
		}
		return found, err
	},
	abstain: func() *pb.OrderResponse { return &pb.OrderResponse{} },
}

// rankCount is the number of ranks that a response has: one per distinct name, or one per record that the service knows.
func rankCount(asked *pb.NameSet, ranks []*pb.Rank) int {
	if asked != nil && len(asked.GetNames()) == 0 {
		return len(ranks)
	}
	distinct := map[string]bool{}
	for _, name := range asked.GetNames() {
		distinct[name] = true
	}
	return len(distinct)
}

var selecting = decision[*pb.SelectVictimsRequest, *pb.SelectVictimsResponse]{
	call: CallSelectVictims, send: pb.DecisionServiceClient.SelectVictims,
	against: func(request *pb.SelectVictimsRequest) **pb.EvaluationRef { return &request.Against },
	items: func(request *pb.SelectVictimsRequest, response *pb.SelectVictimsResponse) ([]ItemProblem, error) {
		return itemProblems(response.GetResult(), response.GetResult().GetItems(), len(request.GetGroups()))
	},
	closed: func(request *pb.SelectVictimsRequest, _ *pb.Reason) *pb.SelectVictimsResponse {
		items := each(request.GetGroups(), func() *pb.VictimItem { return &pb.VictimItem{} })
		return &pb.SelectVictimsResponse{Result: &pb.SelectVictimsResult{Items: items}}
	},
	abstain: func() *pb.SelectVictimsResponse { return &pb.SelectVictimsResponse{} },
}
