package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// pageRun executes the blocks of one page in a folder of its own, which has the repository's examples and deploy folders. A server
// that the page starts listens on free ports; localhost:8000, :8001 and :8002 in commands and snippets mean its addresses.
type pageRun struct {
	*testing.T
	page   *page
	dir    string
	env    []string
	export string // the export commands of the page so far
	server *exec.Cmd
	ended  chan error // the server's end
	log    *watch
	at     addresses
}

// pageProgram runs the command tutti as PROGRAM, with the URL of the page's server where a command has none.
const pageProgram = `#!/bin/bash
case "${1-}" in infer|why|capture|bench|top|jobs) [[ " $* " == *" --url"* || " $* " == *"-help"* ]] || set -- "$1" --url "${PAGE_URL-}" "${@:2}";; esac
exec -a tutti 'PROGRAM' "$@"
`

func newPageRun(t *testing.T, p *page) *pageRun {
	t.Helper()
	root, err := preparedtest.Root()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &pageRun{T: t, page: p, dir: t.TempDir()}
	var quantizer []string
	for _, need := range p.needs {
		switch need {
		case "text":
			requireText(t)
		case "python":
			requirePython(t)
		case "quantizer":
			quantizer = append(quantizer, "TUTTI_QUANTIZER="+preparedtest.Runtime(t, "quantizer"))
		default:
			t.Fatalf("the page needs %q, expected text, python or quantizer", need)
		}
	}
	r.write(".bin/tutti", strings.Replace(pageProgram, "PROGRAM", exe, 1))
	if strings.Contains(p.text, "```python") || strings.Contains(p.text, "$ python3") {
		clients := preparedtest.Script(t, "conformance-clients", "prepare-conformance", "clients")
		r.write(".bin/python3", "#!/bin/bash\nPYTHONPATH='"+clients+"' exec \"$(PATH=\"${PATH#*:}\" command -v python3)\" -B \"$@\"\n")
	}
	for _, name := range []string{"examples", "deploy"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	r.env = append(os.Environ(), "PATH="+r.dir+"/.bin:"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+r.dir+"/.config", "LC_ALL=C.UTF-8",
		"GORACE="+raceOptions, "TUTTI_ONNXRUNTIME_LIB="+requireRuntime(t), "TUTTI_CUDA_DRIVER="+noDriver,
		"TUTTI_HTTP_ADDRESS=127.0.0.1", "TUTTI_GRPC_ADDRESS=127.0.0.1", "TUTTI_HTTP_PORT=0", "TUTTI_GRPC_PORT=0", "TUTTI_METRICS_PORT=0")
	r.env = append(r.env, quantizer...)
	t.Cleanup(r.stop)
	return r
}

// write writes a file into the folder of the page.
func (r *pageRun) write(name, text string) {
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // some are programs
		r.Fatal(err)
	}
}

// all executes the page from its top to its end.
func (r *pageRun) all() {
	for i := range r.page.fences {
		f := &r.page.fences[i]
		switch {
		case f.title != "" && !strings.HasPrefix(f.comment, "not run: "):
			r.write(f.title, f.text)
		case !f.executed():
		case f.language == "console":
			r.console(f)
		case f.language == "python":
			r.compare(f.line, f.output, r.run(f, 0, "python3", "-c", r.addressed(f.text)))
		case f.language == "go":
			r.compare(f.line, f.output, r.program(f))
		}
		if r.Failed() {
			return // what follows needs what failed
		}
	}
}

// console executes the commands of a block. Servers stay until the page's end, or until it starts another one.
func (r *pageRun) console(f *fence) {
	status := 0
	if _, err := fmt.Sscanf(f.comment, "exit %d", &status); f.comment != "" && err != nil {
		r.Fatal(err)
	}
	commands := consoleCommands(f.text)
	for i, c := range commands {
		expected := 0
		if i == len(commands)-1 {
			expected = status
		}
		switch {
		case strings.HasPrefix(c.command, "export "):
			r.export += c.command + "\n"
		case serveCommand.MatchString(c.command) && expected == 0:
			r.serve(f, c)
		default:
			r.compare(f.line, c.printed, r.run(f, expected, "bash", "-c", "set -euo pipefail\n"+r.export+r.addressed(c.command)))
		}
		if r.Failed() {
			return
		}
	}
}

// consoleCommand is a command of a console block and the text below it.
type consoleCommand struct{ command, printed string }

var serveCommand = regexp.MustCompile(`^(\w+=\S+ )*tutti serve\b`)

// consoleCommands splits a console block. A command goes on while a line ends with a backslash or a quotation is open.
func consoleCommands(text string) (commands []consoleCommand) {
	open := false
	for line := range strings.Lines(text) {
		command, begins := strings.CutPrefix(line, "$ ")
		switch last := len(commands) - 1; {
		case open:
			commands[last].command += line
			open = incomplete(commands[last].command)
		case begins:
			commands = append(commands, consoleCommand{command: command})
			open = incomplete(command)
		case last >= 0:
			commands[last].printed += line
		}
	}
	return commands
}

func incomplete(command string) bool {
	return strings.HasSuffix(command, "\\\n") || strings.Count(command, "'")%2 == 1
}

// run executes a command in the folder of the page and returns what it prints.
func (r *pageRun) run(f *fence, status int, name string, args ...string) string {
	if path := filepath.Join(r.dir, ".bin", name); name == "python3" {
		name = path
	}
	cmd := exec.CommandContext(r.Context(), name, args...)
	cmd.Dir, cmd.Env = r.dir, append(slices.Clip(r.env), "PAGE_URL=http://"+r.at.http)
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != status {
		r.Errorf("%s:%d: %s: status %d, want %d (%v)\n%s", r.page.path, f.line, args[len(args)-1], got, status, err, out)
	}
	r.Logf("%s:%d: %s\n%s", r.page.path, f.line, args[len(args)-1], out)
	return string(out)
}

// program executes a program in Go, with the packages of this module.
func (r *pageRun) program(f *fence) string {
	r.write("program/main.go", r.addressed(f.text))
	build := exec.CommandContext(r.Context(), "go", "build", "-o", filepath.Join(r.dir, "program/main"), filepath.Join(r.dir, "program/main.go"))
	if out, err := build.CombinedOutput(); err != nil {
		r.Fatalf("%s:%d: %v\n%s", r.page.path, f.line, err, out)
	}
	cmd := exec.CommandContext(r.Context(), filepath.Join(r.dir, "program/main"))
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.Errorf("%s:%d: %v\n%s", r.page.path, f.line, err, out)
	}
	return string(out)
}

// serve starts a server in place of the one before. The lines below the command must be in its log.
func (r *pageRun) serve(f *fence, c consoleCommand) {
	r.stop()
	r.log = newWatch()
	r.server = exec.Command("bash", "-c", r.export+"exec env "+c.command) //nolint:noctx // stop ends it
	r.server.Dir, r.server.Env, r.server.Stdout, r.server.Stderr = r.dir, r.env, r.log, r.log
	if err := r.server.Start(); err != nil {
		r.Fatal(err)
	}
	r.ended = make(chan error, 1)
	go func(server *exec.Cmd, log *watch, ended chan<- error) {
		ended <- server.Wait()
		log.end()
	}(r.server, r.log, r.ended)
	a, ok := r.log.started()
	if !ok {
		r.server = nil
		r.Fatalf("%s:%d: the server did not start: %v\n%s", r.page.path, f.line, <-r.ended, r.log)
	}
	r.at = a
	if want := printedAs(c.printed); want != "" && !matcher("...\n"+want+"...\n").MatchString(r.shown(r.log.String())) {
		r.Errorf("%s:%d: the log has no such lines, want\n%s\ngot\n%s", r.page.path, f.line, want, r.shown(r.log.String()))
	}
}

// stop ends the page's server.
func (r *pageRun) stop() {
	if r.server != nil {
		_ = r.server.Process.Signal(syscall.SIGTERM)
		if err := <-r.ended; err != nil {
			r.Errorf("%s: the server ended with %v\n%s", r.page.path, err, r.log)
		}
		r.server = nil
	}
}

// addressed replaces the default ports of a server in a command by those of the page's server.
func (r *pageRun) addressed(text string) string {
	for port, address := range r.ports() {
		text = strings.ReplaceAll(text, "localhost:"+port, "localhost:"+address)
	}
	return text
}

// shown undoes addressed in what a command prints, and what printedAs does.
func (r *pageRun) shown(text string) string {
	for port, address := range r.ports() {
		text = regexp.MustCompile(`(localhost|127\.0\.0\.1):`+address+`\b`).ReplaceAllString(text, "localhost:"+port)
	}
	return printedAs(strings.ReplaceAll(text, r.dir+"/", ""))
}

// ports returns the port of each service by its default.
func (r *pageRun) ports() map[string]string {
	ports := map[string]string{}
	for usual, address := range map[string]string{"8000": r.at.http, "8001": r.at.grpc, "8002": r.at.metrics} {
		if _, port, err := net.SplitHostPort(address); err == nil {
			ports[usual] = port
		}
	}
	return ports
}

// varying are the parts of what a command prints that differ each time, with what stands for each in a comparison.
var varying = []struct {
	expression *regexp.Regexp
	as         string
}{
	{regexp.MustCompile(`\b([0-9a-f]{32}|[0-9a-f]{16})\b`), "ID"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ][\d:.]+(Z|[+-]\d\d:\d\d)?`), "DATE"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(ns|us|µs|ms|s)\b`), "DURATION"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?%`), "PERCENT"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(` *\r?\n`), "\n"},
}

// long is a number as FP32 is printed, of which the last digits differ between processors.
var long = regexp.MustCompile(`\b\d+\.\d{6,}\b`)

// printedAs makes output comparable: durations, percentages, dates, ids and the width of columns differ each time. Long numbers have four digits.
func printedAs(text string) string {
	text = long.ReplaceAllStringFunc(text, func(number string) string {
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return number
		}
		return strconv.FormatFloat(v, 'g', 4, 64)
	})
	for _, v := range varying {
		text = v.expression.ReplaceAllString(text, v.as)
	}
	return text
}

// matcher returns the expression for printed text, in which a line "..." stands for any lines and "…" for any text in a line.
func matcher(want string) *regexp.Regexp {
	var b strings.Builder
	for line := range strings.Lines(want) {
		if line == "...\n" {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSuffix(line, "\n")), "…", ".*") + "\n")
	}
	return regexp.MustCompile(`^` + b.String() + `$`)
}

// compare compares what a command printed with the page. A page need not show what a command prints.
func (r *pageRun) compare(line int, want, got string) {
	if want == "" || r.Failed() {
		return
	}
	want, got = strings.TrimRight(printedAs(want), "\n")+"\n", strings.TrimRight(r.shown(got), "\n")+"\n"
	if !matcher(want).MatchString(got) {
		r.Errorf("%s:%d: (-page +printed)\n%s", r.page.path, line, cmp.Diff(want, got))
	}
}

// TestPrinted checks which texts count as equal.
func TestPrinted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		page, printed string
		equal         bool
	}{
		{"a 1.5 ms\n", "a      20 us\n", true},
		{"a 1.5 ms\n", "b 1.5 ms\n", false},
		{"a 1.5\n", "a 1.6\n", false},
		{"[0.021421704,0.5]\n", "[0.021421695,0.5]\n", true},
		{"[0.021421704,0.5]\n", "[0.021321704,0.5]\n", false},
		{"a\n...\nz\n", "a\nb\nc\nz\n", true},
		{"a\n...\nz\n", "a\nb\n", false},
		{"a … c\n", "a b c\n", true},
		{"a … c\n", "a b\n", false},
		{"trace 0123456789abcdef0123456789abcdef\n", "trace fedcba9876543210fedcba9876543210\n", true},
	} {
		if got := matcher(printedAs(c.page)).MatchString(printedAs(c.printed)); got != c.equal {
			t.Errorf("%q and %q: equal is %t, want %t", c.page, c.printed, got, c.equal)
		}
	}
}
