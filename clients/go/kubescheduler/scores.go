package kubescheduler

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"
)

// koordinators are the served plugins whose scores are kube-scheduler's already: whole numbers of 0..100.
var koordinators = []string{"NodeResourcesFitPlus", "ScarceResourceAvoidance"}

// ownScores makes the plugin's own column of 0..100, one per node of the item. Parts that are served under their own
// names are left out; nothing left: nil.
//
// Auto: the scores of one plugin of Koordinator's alone stay untouched. All others are scaled: score × 100 ÷ the highest
// of the nodes asked about, rounded to the nearest, below 0: 0. Zero stays zero, the best node gets 100, and proportions
// are kept.
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
		return scaled(totals)
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

func scaled(scores []float64) ([]int64, error) {
	highest := 0.0
	for _, score := range scores {
		if math.IsNaN(score) || math.IsInf(score, 0) {
			return nil, fmt.Errorf("a score of %v cannot be compared", score)
		}
		highest = max(highest, score)
	}
	column := make([]int64, len(scores))
	for at, score := range scores {
		if score > 0 {
			column[at] = int64(math.Round(score / highest * 100))
		}
	}
	return column, nil
}
