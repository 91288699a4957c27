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

// TestCompatibilityPage keeps docs/compatibility.md: its source lists what a client can
// ask for, the program says what there is to ask for, and comments of the tests say what
// they show. The three must agree.
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

// checkItems fails for what the program has and the page has not, and the reverse.
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

// checkMarkers fails for a comment that shows what nobody lists, and for a promise that
// no test shows.
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
