package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/job"
)

// TestJobsPage runs the commands of docs/jobs.md with the files that it shows, on the repository of its example.
func TestJobsPage(t *testing.T) { // shows: jobs
	t.Parallel()
	page, err := os.ReadFile("../../docs/jobs.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, files := t.TempDir(), map[string]string{}
	for _, m := range regexp.MustCompile("(?ms)^```jsonl title=\"(\\S+)\"\n(.*?)^```$").FindAllSubmatch(page, -1) {
		files[string(m[1])] = string(m[2])
	}
	dataset := filepath.Join(dir, "scores.jsonl")
	if err := os.WriteFile(dataset, []byte(files["scores.jsonl"]), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--model-repository", "../../deploy/kserve/models", "--jobs", "--data-dir", t.TempDir(), "--temporal-program", temporalProgram(t)}
	p, a := startProcess(t, services, append(args, freePorts...)...)
	repeated(t, "Temporal", func(ctx context.Context) error { // it starts with the server
		code, text, err := httpCall(ctx, http.MethodGet, "http://"+a.http+"/v2/jobs", nil)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d: %s", code, text)
		}
		return err
	})
	printed, commands := map[string]string{}, regexp.MustCompile(`(?m)^\$ tutti jobs (\S+)(.*)$`).FindAllSubmatch(page, -1)
	if len(commands) < 6 {
		t.Fatalf("%d commands on the page", len(commands))
	}
	for _, m := range commands {
		verb := string(m[1])
		if verb == "retry" { // the page says: correct the row
			fixed := strings.ReplaceAll(files["scores.jsonl"], `"none"`, `[5, 6, 7, 8]`)
			if err := os.WriteFile(dataset, []byte(fixed), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.CommandContext(t.Context(), p.Path)
		c.Args = append([]string{"tutti", "jobs", "--url", "http://" + a.http, verb}, strings.Fields(string(m[2]))...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", m[0], err, out)
		}
		printed[verb] = string(out)
	}
	for verb, want := range map[string]string{
		"submit": "3 rows, of which 1 failed", "show": "state     completed\n", "failures": "expected a number, found a string", "result": "3 rows, 1 failed", "list": "first",
	} {
		if !strings.Contains(printed[verb], want) {
			t.Errorf("tutti jobs %s printed %q, want %q", verb, printed[verb], want)
		}
	}
	if st := reached(t, a.http, strings.TrimSpace(printed["retry"]), 0); st.Rows.Failed != 0 || st.Rows.Reused != 2 || st.Rows.Done != 3 {
		t.Errorf("after the correction: %+v", st.Rows)
	}
	requestCommands(t, string(page), a.http)
	parts, err := filepath.Glob(filepath.Join(dir, "ranked", "part-*.jsonl"))
	if err != nil || len(parts) == 0 {
		t.Fatalf("no parts: %v", err)
	}
	text, err := os.ReadFile(parts[0])
	if err != nil || !strings.HasPrefix(string(text), files["ranked"]) {
		t.Errorf("the results begin with %.200s, want %s: %v", text, files["ranked"], err)
	}
	p.terminated(t)
}

// requestCommands runs the commands of the page for single requests, with the ID of the request that they make.
func requestCommands(t *testing.T, page, address string) {
	t.Helper()
	id := regexp.MustCompile(`[0-9]{8}-[0-9]{6}-[0-9a-f]{32}`)
	shown, made := id.FindString(page), ""
	var printed []string
	for _, m := range regexp.MustCompile(`(?m)^\$ (curl .*)$`).FindAllStringSubmatch(page, -1) {
		command := strings.ReplaceAll(strings.ReplaceAll(m[1], "localhost:8000", address), shown, made)
		if strings.HasSuffix(command, "/result") {
			asyncEnded(t, "http://"+address, job.RequestStatus{ID: made, StatusURL: job.RequestPath(made)})
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		if made == "" {
			made = id.FindString(string(out))
		}
		printed = append(printed, string(out))
	}
	for i, want := range []string{"HTTP/1.1 202 Accepted", `"state":`, `"data":[2,0,1]`} {
		if i >= len(printed) || !strings.Contains(printed[i], want) {
			t.Errorf("command %d printed %q, want %q", i, printed, want)
		}
	}
}
