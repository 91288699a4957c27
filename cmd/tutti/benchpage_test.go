package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	pageFile    = regexp.MustCompile("(?ms)^```(?:pbtxt|jsonl) title=\"(\\S+)\"\n(.*?)^```$")
	pageCommand = regexp.MustCompile(`(?m)^(\$ )?tutti (bench|top) (.*)\n((?:.*\n)*?)` + "(?:```|tutti )")
	figure      = regexp.MustCompile(`^(-|-?\d[\d.]*(us|ms|s|m\d+s)?)$`)
	doubtful    = regexp.MustCompile(`(?m)^.*:\n(  (no three windows|the requests fell).*\n)+\n?`)
)

// skeleton returns a text without its figures and its column widths.
func skeleton(text string) string {
	text = doubtful.ReplaceAllString(text, "")
	text = regexp.MustCompile(`no difference found|higher|lower`).ReplaceAllString(text, "verdict")
	text = regexp.MustCompile(`(?m)^  network, protocol.*\n`).ReplaceAllString(text, "")
	var lines []string
	for line := range strings.Lines(text) {
		var words []string
		for word := range strings.FieldsSeq(line) {
			after := len(words) > 0 && words[len(words)-1] == "#"
			switch {
			case figure.MatchString(word):
				words = append(words, "#")
			case after && (word == "us" || word == "ms" || word == "s"):
			default:
				words = append(words, word)
			}
		}
		if len(words) > 0 {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return strings.Join(lines, "\n")
}

// TestBenchmarkingPage runs the commands of docs/benchmarking.md with its files, for short, and compares what they print with
// the page but for the figures.
func TestBenchmarkingPage(t *testing.T) {
	t.Parallel()
	requireRuntime(t)
	text, err := os.ReadFile(docsDir + "benchmarking.md")
	if err != nil {
		t.Fatal(err)
	}
	page, dir := string(text), t.TempDir()
	for _, m := range pageFile.FindAllStringSubmatch(page, -1) {
		path := filepath.Join(dir, m[1])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(m[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	main := serve(t, "--model-repository", filepath.Join(dir, "models"), "--allow-client-shm=true")
	streams := serve(t, "--model-repository="+examplesDir+"/../stream", "--model-repository="+examplesDir+"/../stateful")
	commands := 0
	for rest := page; ; commands++ {
		at := pageCommand.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		m := pageCommand.FindStringSubmatch(rest)
		rest = rest[at[9]:]
		a := main
		if strings.HasPrefix(m[3], "repeat_int32") || strings.HasPrefix(m[3], "accumulator") {
			a = streams
		}
		place := strings.NewReplacer("http://127.0.0.1:8000", "http://"+a.http, "grpc://127.0.0.1:8001", "grpc://"+a.grpc)
		args := append([]string{"tutti", m[2]}, strings.Fields(place.Replace(m[3]))...)
		if !strings.Contains(m[3], "--url") {
			args = append(args, "--url", "http://"+a.http)
		}
		if m[2] == "bench" { // the last value of a flag counts
			args = append(args, "--warmup", "10ms", "--window", "60ms", "--rounds", "2")
			if strings.Contains(m[3], "--duration") {
				args = append(args, "--duration", "100ms")
			}
		}
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Args, cmd.Dir, cmd.Env = args, dir, append(os.Environ(), "GORACE="+raceOptions)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Errorf("%s: %v\n%s", m[0], err, &errs)
		}
		if m[1] == "" {
			continue
		}
		if diff := cmp.Diff(skeleton(place.Replace(m[4])), skeleton(out.String()+errs.String())); diff != "" {
			t.Errorf("the page shows other lines than %q prints (-page +printed):\n%s\n%s", args, diff, &out)
		}
	}
	if commands != 9 {
		t.Errorf("%d commands on the page, expected 9", commands)
	}
}
