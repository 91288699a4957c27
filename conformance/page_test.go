package conformance_test

import (
	"os"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/goldentest"
)

const (
	pageSource = "testdata/compatibility.src.md"
	page       = "../docs/compatibility.md"
)

// TestCompatibilityPage checks that docs/compatibility.md is up to date and that three lists agree: the features in
// the page's source, the features of the program, and the features that comments of the tests show.
func TestCompatibilityPage(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(pageSource)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := parsePage(string(source))
	if err != nil {
		t.Fatal(err)
	}
	shown := collect(t)
	checkItems(t, blocks)
	checkMarkers(t, blocks, shown)
	goldentest.Check(t, page, []byte(render(t, blocks, shown)))
}

// checkItems fails for a feature of the program that the page lacks, and for a feature of the page that the program
// lacks.
func checkItems(t *testing.T, blocks []block) {
	t.Helper()
	listed := map[string]int{}
	for i := range blocks {
		for _, r := range blocks[i].rows {
			for _, item := range r.items {
				listed[blocks[i].kind+" "+item]++
			}
		}
	}
	want := map[string]bool{}
	for kind, items := range map[string][]string{"routes": routes(t), "rpcs": rpcs(), "messages": fields(protocol), "config": fields(configuration)} {
		for _, item := range items {
			want[kind+" "+item] = true
			if n := listed[kind+" "+item]; n != 1 {
				t.Errorf("%s: the %s '%s' is listed %d times, expected 1", pageSource, kind, item, n)
			}
		}
	}
	for item := range listed {
		if !want[item] && !strings.HasPrefix(item, "features ") {
			t.Errorf("%s: there is no %s", pageSource, item)
		}
	}
}

// checkMarkers fails for a marker that no row lists, and for a row that no test shows.
func checkMarkers(t *testing.T, blocks []block, shown map[string][]string) {
	t.Helper()
	used := map[string]bool{}
	for i := range blocks {
		for _, r := range blocks[i].rows {
			if r.works != "no" && len(r.tests(shown)) == 0 {
				t.Errorf("%s: no test shows %v, expected a comment 'shows: %s' at one", pageSource, r.items, strings.Join(r.markers, " "))
			}
			for _, m := range r.markers {
				used[m] = true
			}
		}
	}
	for m, where := range shown {
		if !used[m] {
			t.Errorf("%v: nothing in %s is called '%s'", where, pageSource, m)
		}
	}
}
