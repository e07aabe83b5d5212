package kubescheduler

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	fwk "k8s.io/kube-scheduler/framework"
)

// koordinators are the served plugins whose scores are kube-scheduler's already: whole numbers of 0..100.
var koordinators = []string{"NodeResourcesFitPlus", "ScarceResourceAvoidance"}

// ownScores makes the plugin's own column, one raw score per node of the item. Parts that are served under their own
// names are left out; nothing left: nil. Scaled columns become 0..100 in [normalize], where all nodes are known that kube-scheduler
// compares; the others are 0..100 already.
//
// Auto: the scores of one plugin of Koordinator's alone stay untouched. All others are scaled.
func ownScores(item *pb.ScoreItem, rule string, elsewhere []string) ([]int64, error) {
	var parts []*pb.ScorePart
	plugins := map[string]bool{}
	for _, part := range item.GetParts() {
		if !slices.Contains(elsewhere, part.GetPlugin()) {
			parts = append(parts, part)
			plugins[part.GetPlugin()] = true
		}
	}
	if len(parts) == 0 {
		return nil, nil
	}
	totals := item.GetTotals()
	if len(elsewhere) > 0 {
		// What is left counts by itself, without the weights of the policy's profile: those are part of the totals.
		totals = make([]float64, len(item.GetTotals()))
		for _, part := range parts {
			for at, score := range part.GetScores() {
				totals[at] += score
			}
		}
	}
	switch {
	case rule == ScoresUntouched:
		return untouched(totals)
	case rule == ScoresAuto && len(plugins) == 1 && slices.Contains(koordinators, parts[0].GetPlugin()):
		return untouched(parts[0].GetScores())
	default:
		return raw(totals)
	}
}

// columnsOf reports columns of an item that do not have one score for each of its nodes. An item with a problem has none.
func columnsOf(item *pb.ScoreItem, nodes int) error {
	if item.GetProblem() != nil {
		return nil
	}
	if len(item.GetTotals()) != nodes {
		return fmt.Errorf("the response has %d nodes and %d totals", nodes, len(item.GetTotals()))
	}
	for _, part := range item.GetParts() {
		if len(part.GetScores()) != nodes {
			return fmt.Errorf("the response has %d nodes and %d scores of %s", nodes, len(part.GetScores()), part.GetPlugin())
		}
	}
	return nil
}

// ones is the number of slots in a bitmap.
func ones(bitmap []byte) (slots int) {
	for _, some := range bitmap {
		slots += bits.OnesCount8(some)
	}
	return slots
}

// partScores is the column of one plugin, untouched.
func partScores(item *pb.ScoreItem, plugin string) ([]int64, error) {
	for _, part := range item.GetParts() {
		if part.GetPlugin() == plugin {
			return untouched(part.GetScores())
		}
	}
	return nil, fmt.Errorf("the policy has no scores of %s", plugin)
}

// untouched refuses what kube-scheduler would not take as it is.
func untouched(scores []float64) ([]int64, error) {
	column := make([]int64, len(scores))
	for at, score := range scores {
		if !(score >= 0 && score <= 100) || score != math.Trunc(score) {
			return nil, fmt.Errorf("a score of %v is not a whole number of 0..100", score)
		}
		column[at] = int64(score)
	}
	return column, nil
}

// smallestScore is the smallest score that is not 0 for kube-scheduler: that of a normal floating-point number.
const smallestScore = 0x1p-1022

// raw encodes scores so that [normalize] finds them again to the last bit: the bits of a positive score, which are greater than
// 100 and have the order of the scores; 0 for all others.
func raw(scores []float64) ([]int64, error) {
	column := make([]int64, len(scores))
	for at, score := range scores {
		if math.IsNaN(score) || math.IsInf(score, 0) {
			return nil, fmt.Errorf("a score of %v cannot be compared", score)
		}
		if score >= smallestScore {
			column[at] = int64(math.Float64bits(score))
		}
	}
	return column, nil
}

// normalize scales raw scores, if there are any: score × 100 ÷ the highest, rounded to the nearest. Zero stays zero, the best node
// gets 100, and proportions are kept. kube-scheduler calls it again when it compares scores of several cycles.
func normalize(scores fwk.NodeScoreList) {
	highest := int64(0)
	for _, node := range scores {
		highest = max(highest, node.Score)
	}
	if highest <= fwk.MaxNodeScore {
		return
	}
	most := math.Float64frombits(uint64(highest))
	for at := range scores {
		scores[at].Score = int64(math.Round(math.Float64frombits(uint64(scores[at].Score)) / most * 100))
	}
}
