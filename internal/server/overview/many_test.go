package overview //nolint:testpackage // as the other tests of this package

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// folders are models of which some were loaded, and others are only in folders.
type folders struct {
	counted
	opened, index []infer.Entry
	looks         int
}

func (f *folders) Opened() []infer.Entry { return append([]infer.Entry{}, f.opened...) }

func (f *folders) Index(bool) []infer.Entry {
	f.looks++
	return append([]infer.Entry{}, f.index...)
}

func (*folders) Counters() []inspect.Counters { return nil }

// TestModelsInFolders checks that models which were never loaded are listed in their places, not twice after they are loaded, and that the
// folders are not read for each list.
func TestModelsInFolders(t *testing.T) {
	t.Parallel()
	f := &folders{
		opened: []infer.Entry{{Name: "b", Version: "1", State: infer.Ready}, {Name: "b", Version: "2", State: infer.Ready}},
		index:  []infer.Entry{{Name: "a"}, {Name: "b", Version: "1", State: infer.Ready}, {Name: "b", Version: "2", State: infer.Ready}, {Name: "c"}},
	}
	w := &Window{set: Settings{Models: f}, versions: map[versionKey]*samples{}}
	names := func() (list []string) {
		for _, m := range w.Models() {
			list = append(list, m.Name+m.Version)
		}
		return list
	}
	if diff := cmp.Diff([]string{"a", "b1", "b2", "c"}, names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.opened = append(f.opened, infer.Entry{Name: "c", Version: "1", State: infer.Loading})
	f.index = f.index[1:]
	for range 5 {
		if diff := cmp.Diff([]string{"a", "b1", "b2", "c1"}, names()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if f.looks != 1 {
		t.Errorf("the folders were read %d times, expected once", f.looks)
	}
	w.listing.at = time.Now().Add(-2 * listTime)
	if diff := cmp.Diff([]string{"b1", "b2", "c1"}, names()); diff != "" {
		t.Errorf("after a folder was removed (-want +got):\n%s", diff)
	}
}

// TestManyDegraded checks that the view of a server has a hundred degraded parts at most, and the number of others.
func TestManyDegraded(t *testing.T) {
	t.Parallel()
	var list []infer.Degradation
	for i := range 250 {
		list = append(list, infer.Degradation{What: "model", Name: fmt.Sprintf("m%d", i)})
	}
	w := &Window{set: Settings{Ready: func() bool { return true }, GPUs: func() []telemetry.GPU { return nil }, Degraded: func() []infer.Degradation { return list }}}
	if v := w.Server(); len(v.Degraded) != 100 || v.DegradedMore != 150 || v.Degraded[99].Name != "m99" {
		t.Errorf("%d parts, %d more", len(v.Degraded), v.DegradedMore)
	}
	list = list[:100]
	if v := w.Server(); len(v.Degraded) != 100 || v.DegradedMore != 0 {
		t.Errorf("%d parts, %d more", len(v.Degraded), v.DegradedMore)
	}
}
