package kubescheduler

import (
	"math"
	"slices"
	"testing"

	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	fwk "k8s.io/kube-scheduler/framework"
)

func item(parts ...*pb.ScorePart) *pb.ScoreItem {
	made := &pb.ScoreItem{Parts: parts}
	for _, part := range parts {
		for len(made.Totals) < len(part.GetScores()) {
			made.Totals = append(made.Totals, 0)
		}
		for at, score := range part.GetScores() {
			made.Totals[at] += score
		}
	}
	return made
}

func TestScoresBecomeZeroToAHundredAsStated(t *testing.T) {
	fit := func(scores ...float64) *pb.ScorePart {
		return &pb.ScorePart{Plugin: "NodeResourcesFitPlus", Scores: scores}
	}
	rsf := func(scores ...float64) *pb.ScorePart {
		return &pb.ScorePart{Plugin: "resource-strategy-fit", Scores: scores}
	}
	for _, test := range []struct {
		name, rule string
		item       *pb.ScoreItem
		elsewhere  []string
		want       []int64
		fails      bool
	}{
		{"Koordinator's alone stay", ScoresAuto, item(fit(0, 37, 50)), nil, []int64{0, 37, 50}, false},
		{"Volcano's are scaled", ScoresAuto, item(rsf(406.25, 697.917, 0)), nil, []int64{58, 100, 0}, false},
		{"also below a hundred", ScoresAuto, item(rsf(10, 20)), nil, []int64{50, 100}, false},
		{"the parts of a plugin add up", ScoresAuto, item(rsf(10, 20), &pb.ScorePart{Plugin: "resource-strategy-fit", Part: "sra", Scores: []float64{10, 0}}), nil, []int64{100, 100}, false},
		{"two together are scaled", ScoresAuto, item(fit(100, 50), rsf(0, 100)), nil, []int64{67, 100}, false},
		{"scaled where it is said", ScoresScaled, item(fit(10, 40)), nil, []int64{25, 100}, false},
		{"untouched where it is said", ScoresUntouched, item(rsf(10, 40)), nil, []int64{10, 40}, false},
		{"untouched and no score", ScoresUntouched, item(rsf(10, 140)), nil, nil, true},
		{"untouched and a fraction", ScoresUntouched, item(rsf(0.5)), nil, nil, true},
		{"below nothing", ScoresAuto, item(rsf(-5, 10)), nil, []int64{0, 100}, false},
		{"all nothing", ScoresAuto, item(rsf(0, 0)), nil, []int64{0, 0}, false},
		{"no number", ScoresAuto, item(rsf(math.NaN())), nil, nil, true},
		{"no scores", ScoresAuto, &pb.ScoreItem{Totals: []float64{0, 0}}, nil, nil, false},
		{"all under their own names", ScoresAuto, item(fit(1, 2)), []string{"NodeResourcesFitPlus"}, nil, false},
		{"the rest", ScoresAuto, item(fit(100, 0), rsf(1, 2)), []string{"NodeResourcesFitPlus"}, []int64{50, 100}, false},
	} {
		column, err := ownScores(test.item, test.rule, test.elsewhere)
		column = normalized(column)
		if !slices.Equal(column, test.want) || (err != nil) != test.fails {
			t.Errorf("%s: %v, %v", test.name, column, err)
		}
	}
	if column, err := partScores(item(fit(1, 100), rsf(3, 4)), "NodeResourcesFitPlus"); err != nil || !slices.Equal(column, []int64{1, 100}) {
		t.Error(column, err)
	}
	if _, err := partScores(item(rsf(3, 4)), "NodeResourcesFitPlus"); err == nil {
		t.Error("a part that is not there")
	}
}

func TestColumnsBelongToTheNodes(t *testing.T) {
	for name, test := range map[string]struct {
		item *pb.ScoreItem
		ok   bool
	}{
		"all":          {&pb.ScoreItem{Totals: []float64{1, 2}, Parts: []*pb.ScorePart{{Scores: []float64{1, 2}}}}, true},
		"a problem":    {&pb.ScoreItem{Problem: &pb.Problem{}}, true},
		"no totals":    {&pb.ScoreItem{}, false},
		"a total less": {&pb.ScoreItem{Totals: []float64{1}}, false},
		"a score less": {&pb.ScoreItem{Totals: []float64{1, 2}, Parts: []*pb.ScorePart{{Plugin: "binpack", Scores: []float64{1}}}}, false},
	} {
		if err := columnsOf(test.item, 2); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if ones([]byte{0b101, 0xff}) != 10 || ones(nil) != 0 {
		t.Error("slots of a bitmap")
	}
}

// normalized is a column as kube-scheduler sees it.
func normalized(column []int64) []int64 {
	list := make(fwk.NodeScoreList, len(column))
	for at, score := range column {
		list[at].Score = score
	}
	normalize(list)
	for at, score := range list {
		column[at] = score.Score
	}
	return column
}

// TestScoresOfTwoCyclesCompare: kube-scheduler compares a node's new score with the others' old ones.
func TestScoresOfTwoCyclesCompare(t *testing.T) {
	before, err := raw([]float64{60, 55, 30})
	if err != nil {
		t.Fatal(err)
	}
	after, err := raw([]float64{54, 55, 30})
	if err != nil {
		t.Fatal(err)
	}
	// The first node has taken a pod and is second now: less than a percent behind.
	if mixed := normalized([]int64{after[0], before[1], before[2]}); !slices.Equal(mixed, []int64{98, 100, 55}) {
		t.Fatal(mixed)
	}
	if small := normalized([]int64{0, 100, 7}); !slices.Equal(small, []int64{0, 100, 7}) {
		t.Fatal(small)
	}
}
