package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/job"
)

// asyncResponse is a response whose body was read.
type asyncResponse struct {
	StatusCode int
	Header     http.Header
}

// asyncCall sends a request and returns the response and its body.
func asyncCall(ctx context.Context, t *testing.T, method, url, body string, header ...string) (asyncResponse, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return asyncResponse{resp.StatusCode, resp.Header}, string(text)
}

// asyncModels returns a repository with identity models: "quick", and "slow", which takes two seconds.
func asyncModels(t *testing.T) (repository string) {
	t.Helper()
	repository = t.TempDir()
	for model, delay := range map[string]string{"quick": "0", "slow": "2000"} {
		text := `backend: "identity" max_batch_size: 16
input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }
parameters { key: "execute_delay_ms" value { string_value: "` + delay + `" } }`
		for name, content := range map[string]string{"1/file": "", "config.pbtxt": text} {
			path := filepath.Join(repository, model, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return repository
}

// asyncServer starts a server with jobs and these models.
func asyncServer(t *testing.T, dir string, more ...string) (*jobProcess, string) {
	t.Helper()
	args := []string{"serve", "--model-repository", asyncModels(t), "--jobs=true", "--data-dir", dir, "--temporal-program", temporalProgram(t)}
	p, a := startProcess(t, services, append(append(args, more...), freePorts...)...)
	return p, "http://" + a.http
}

const asyncBody = `{"id":"7","inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"INT32","data":[42]}]}`

// asyncSubmit submits a request until Temporal is there, and returns its status.
func asyncSubmit(t *testing.T, url, model, body string, header ...string) (st job.RequestStatus) {
	t.Helper()
	repeated(t, "submit", func(ctx context.Context) error {
		resp, text := asyncCall(ctx, t, http.MethodPost, url+"/v2/models/"+model+"/infer", body, append([]string{"Prefer", "respond-async"}, header...)...)
		if resp.StatusCode != http.StatusAccepted {
			return fmt.Errorf("status %d: %s", resp.StatusCode, text)
		}
		st = job.RequestStatus{}
		if err := json.Unmarshal([]byte(text), &st); err != nil {
			t.Fatal(err)
		}
		if got := resp.Header.Get("Location"); got != st.StatusURL || got != job.RequestPath(st.ID) {
			t.Errorf("Location is %q, the status %+v", got, st)
		}
		if got := resp.Header.Get("Preference-Applied"); got != "respond-async" {
			t.Errorf("Preference-Applied is %q", got)
		}
		return nil
	})
	return st
}

// asyncEnded waits until a request has ended.
func asyncEnded(t *testing.T, url string, st job.RequestStatus) (now job.RequestStatus) {
	t.Helper()
	repeated(t, "request "+st.ID, func(ctx context.Context) error {
		resp, text := asyncCall(ctx, t, http.MethodGet, url+st.StatusURL, "")
		now = job.RequestStatus{}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d: %s", resp.StatusCode, text)
		}
		if err := json.Unmarshal([]byte(text), &now); err != nil {
			t.Fatal(err)
		}
		if !now.State.Final() {
			return fmt.Errorf("it is %s", text)
		}
		return nil
	})
	return now
}

// sameResult compares the result of an asynchronous request with the response to the same request without Prefer.
func sameResult(t *testing.T, what string, resp, want asyncResponse, text, wantText string) {
	t.Helper()
	if resp.StatusCode != want.StatusCode || text != wantText {
		t.Errorf("%s: status %d, %q; want %d, %q", what, resp.StatusCode, text, want.StatusCode, wantText)
	}
	for _, name := range []string{"Content-Type", "Content-Length", "Inference-Header-Content-Length", "Content-Encoding", "Vary", "Retry-After"} {
		if got, want := resp.Header.Get(name), want.Header.Get(name); got != want {
			t.Errorf("%s: %s is %q, want %q", what, name, got, want)
		}
	}
}

// TestAsyncResults compares results and errors of asynchronous requests with those of the same requests without Prefer: JSON
// and binary, compressed, by version, with wrong models, inputs and shapes.
// shows: respond-async
func TestAsyncResults(t *testing.T) {
	t.Parallel()
	_, url := asyncServer(t, t.TempDir())
	head := `{"inputs":[{"name":"INPUT0","shape":[2,1],"datatype":"INT32","parameters":{"binary_data_size":8}}],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}`
	binary := head + "\x01\x00\x00\x00\x02\x00\x00\x00"
	size := []string{"Inference-Header-Content-Length", strconv.Itoa(len(head))}
	asyncSubmit(t, url, "quick", asyncBody) // Temporal is there
	for _, tt := range []struct {
		name, model, body string
		header            []string
	}{
		{"json", "quick", asyncBody, nil},
		{"version", "quick/versions/1", asyncBody, nil},
		{"binary", "quick", binary, size},
		{"gzip response", "quick", binary, append(size, "Accept-Encoding", "gzip")},
		{"unknown model", "none", asyncBody, nil},
		{"unknown version", "quick/versions/9", asyncBody, nil},
		{"bad version", "quick/versions/0", asyncBody, nil},
		{"no JSON", "quick", "{", nil},
		{"no inputs", "quick", `{"inputs":[]}`, nil},
		{"wrong input", "quick", strings.ReplaceAll(asyncBody, "INPUT0", "X"), nil},
		{"wrong type", "quick", strings.ReplaceAll(asyncBody, "INT32", "INT64"), nil},
		{"wrong shape", "quick", strings.ReplaceAll(asyncBody, "[1,1]", "[1]"), nil},
		{"wrong size", "quick", strings.ReplaceAll(asyncBody, "[42]", "[42,43]"), nil},
		{"too large a batch", "quick", `{"inputs":[{"name":"INPUT0","shape":[17,1],"datatype":"INT32","data":[` + strings.Repeat("1,", 16) + `1]}]}`, nil},
		{"wrong output", "quick", strings.ReplaceAll(asyncBody, `]}]}`, `]}],"outputs":[{"name":"Y"}]}`), nil},
		{"short binary", "quick", binary[:len(binary)-1], size},
		{"wrong length", "quick", binary, []string{"Inference-Header-Content-Length", "x"}},
		{"sequence", "quick", strings.ReplaceAll(asyncBody, `"id":"7"`, `"parameters":{"sequence_id":5,"sequence_start":true}`), nil}, // executed at once
	} {
		path := url + "/v2/models/" + tt.model + "/infer"
		want, wantText := asyncCall(t.Context(), t, http.MethodPost, path, tt.body, tt.header...)
		resp, text := asyncCall(t.Context(), t, http.MethodPost, path, tt.body, append([]string{"Prefer", "respond-async, wait=60"}, tt.header...)...)
		sameResult(t, tt.name+", waited for", resp, want, text, wantText)
		if want.StatusCode != http.StatusOK || tt.name == "sequence" {
			if resp.Header.Get("Preference-Applied") != "" || resp.Header.Get("Location") != "" {
				t.Errorf("%s: the preference was applied: %v", tt.name, resp.Header)
			}
			continue
		}
		if got := resp.Header.Get("Preference-Applied"); got != "respond-async, wait=60" {
			t.Errorf("%s: Preference-Applied is %q", tt.name, got)
		}
		st := asyncSubmit(t, url, tt.model, tt.body, tt.header...)
		if now := asyncEnded(t, url, st); now.State != job.Succeeded || now.Code != http.StatusOK || now.Attempts != 1 || now.Ended.Before(now.Created) {
			t.Errorf("%s: %+v", tt.name, now)
		}
		resp, text = asyncCall(t.Context(), t, http.MethodGet, url+st.ResultURL, "", tt.header...)
		sameResult(t, tt.name, resp, want, text, wantText)
	}
}

// TestAsyncSurvivesKills kills the server with SIGKILL while it executes a request and while another one waits, and expects
// the results of the next server; a request's content is nowhere in the files of Temporal.
func TestAsyncSurvivesKills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, url := asyncServer(t, dir)
	secret := `{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"INT32","data":[1234567891]}]}`
	first := asyncSubmit(t, url, "slow", secret)
	repeated(t, "execution", func(ctx context.Context) error {
		if _, text := asyncCall(ctx, t, http.MethodGet, url+first.StatusURL, ""); !strings.Contains(text, `"state":"running"`) {
			return fmt.Errorf("it is %s", text)
		}
		return nil
	})
	second := asyncSubmit(t, url, "slow", asyncBody)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	_, url = asyncServer(t, dir)
	for _, tt := range []struct {
		st   job.RequestStatus
		want string
	}{{first, `"data":[1234567891]`}, {second, `"data":[42]`}} {
		now := asyncEnded(t, url, tt.st)
		if now.State != job.Succeeded || !now.Created.Equal(tt.st.Created) {
			t.Errorf("after the end of the server: %+v", now)
		}
		if resp, text := asyncCall(t.Context(), t, http.MethodGet, url+tt.st.ResultURL, ""); resp.StatusCode != 200 || !strings.Contains(text, tt.want) {
			t.Errorf("the result is %d, %s", resp.StatusCode, text)
		}
	}
	if now := asyncEnded(t, url, first); now.Attempts < 2 {
		t.Errorf("the request that was executed at the kill has %d attempts", now.Attempts)
	}
	repeated(t, "removal of the requests", func(context.Context) error { // a moment after the response is there
		left, err := filepath.Glob(filepath.Join(dir, "requests", "*.request"))
		if err == nil && len(left) != 0 {
			err = fmt.Errorf("requests are left: %v", left)
		}
		return err
	})
	files, err := filepath.Glob(filepath.Join(dir, "temporal", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of Temporal: %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("1234567891")) {
			t.Errorf("%s has the content of a request", f)
		}
	}
}
