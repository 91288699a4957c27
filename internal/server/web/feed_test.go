package web_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/server/web"
)

// manyModels is an Overview whose models a test changes.
type manyModels struct {
	fakeStore
	mu   sync.Mutex
	list []inspect.ModelView
}

func (m *manyModels) Models() []inspect.ModelView {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]inspect.ModelView{}, m.list...)
}

func (m *manyModels) change(f func([]inspect.ModelView) []inspect.ModelView) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = f(m.list)
}

// openEvents opens the event stream of a server, compressed or not, and returns its lines and its headers.
func openEvents(t *testing.T, url, accept string) (*bufio.Reader, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/ui/api/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept-Encoding", accept)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return bufio.NewReader(resp.Body), resp.Header
}

// nextModels returns the names of the models in the next event about models, after the event's name.
func nextModels(t *testing.T, lines *bufio.Reader) (names []string) {
	t.Helper()
	for event := ""; ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = strings.TrimSpace(name)
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || event != "models" && event != "changed" {
			continue
		}
		var list []inspect.ModelView
		if err := json.Unmarshal([]byte(data), &list); err != nil {
			t.Fatal(err)
		}
		names = []string{event}
		for _, m := range list {
			names = append(names, m.Name)
		}
		return names
	}
}

// TestChangedModels checks that event streams have all models first, then those that changed only, and all again when one is gone.
func TestChangedModels(t *testing.T) {
	t.Parallel()
	x := &manyModels{}
	for i := range 4 {
		x.list = append(x.list, inspect.ModelView{Name: fmt.Sprintf("m%d", i), Version: "1", State: "READY", Rates: []float64{}})
	}
	s := web.New(web.Settings{Overview: x})
	h := httptest.NewServer(s)
	defer h.Close()
	defer s.Close()
	packed, _ := openEvents(t, h.URL, "")
	plain, header := openEvents(t, h.URL, "identity")
	if header.Get("Content-Encoding") != "" || header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("headers of a plain stream: %v", header)
	}
	for _, step := range []struct {
		change func([]inspect.ModelView) []inspect.ModelView
		want   []string
	}{
		{nil, []string{"models", "m0", "m1", "m2", "m3"}},
		{func(l []inspect.ModelView) []inspect.ModelView { l[2].Rate, l[2].Rates = 1, []float64{1}; return l }, []string{"changed", "m2"}},
		{func(l []inspect.ModelView) []inspect.ModelView {
			l[0].State, l[0].Reason = "UNAVAILABLE", "why"
			return l
		}, []string{"changed", "m0"}},
		{func(l []inspect.ModelView) []inspect.ModelView { return append(l, inspect.ModelView{Name: "m4"}) }, []string{"changed", "m4"}},
		{func(l []inspect.ModelView) []inspect.ModelView { return l[1:] }, []string{"models", "m1", "m2", "m3", "m4"}},
		{func(l []inspect.ModelView) []inspect.ModelView { l[0].Requests++; return l }, []string{"changed", "m1"}},
	} {
		if step.change != nil {
			x.change(step.change)
		}
		for _, lines := range []*bufio.Reader{packed, plain} {
			if diff := cmp.Diff(step.want, nextModels(t, lines)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		}
	}
}

// TestCompressedResponses checks that large responses are compressed for clients that accept it, and only for them.
func TestCompressedResponses(t *testing.T) {
	t.Parallel()
	x := &manyModels{}
	for i := range 1000 {
		x.list = append(x.list, inspect.ModelView{Name: fmt.Sprintf("m%d", i), Version: "1", State: "READY", Rates: []float64{}})
	}
	s := web.New(web.Settings{Overview: x})
	for _, path := range []string{"models", "server"} {
		_, body := send(s, "GET", "/ui/api/"+path, "")
		_, packed := send(s, "GET", "/ui/api/"+path, "", "Accept-Encoding", "gzip")
		if large := len(body) > 1024; large && len(packed)*5 > len(body) || !large && packed != body {
			t.Errorf("%s: %d bytes, %d for a client that accepts gzip", path, len(body), len(packed))
		}
	}
}

// BenchmarkModelEvents measures an update of a stream at a server of 10,000 models of which 10 are busy.
func BenchmarkModelEvents(b *testing.B) {
	x := &manyModels{}
	for i := range 10_000 {
		x.list = append(x.list, inspect.ModelView{Name: fmt.Sprintf("model-%05d", i), Version: "1", State: "READY", Platform: "identity", Rates: []float64{}})
	}
	updates := web.ModelUpdates(x)
	first := updates()
	for b.Loop() {
		for i := range 10 {
			x.list[i].Requests++
		}
		updates()
	}
	b.ReportMetric(float64(first), "B/first")
	b.ReportMetric(float64(updates()), "B/update")
}
