package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestJobsPage runs the commands of docs/jobs.md with the files that it shows, on the repository of its example.
func TestJobsPage(t *testing.T) { // shows: jobs
	t.Parallel()
	page, err := os.ReadFile("../../docs/jobs.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, files := t.TempDir(), map[string]string{}
	for _, m := range regexp.MustCompile("(?ms)^```jsonl (\\S+)\n(.*?)^```$").FindAllSubmatch(page, -1) {
		files[string(m[1])] = string(m[2])
	}
	dataset := filepath.Join(dir, "scores.jsonl")
	if err := os.WriteFile(dataset, []byte(files["scores.jsonl"]), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--model-repository", "../../deploy/kserve/models", "--jobs", "--data-dir", t.TempDir(), "--temporal-program", temporalProgram(t)}
	p, a := startProcess(t, services, append(args, freePorts...)...)
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
