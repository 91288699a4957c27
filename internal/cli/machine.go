package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/exposure"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/runtimes"
	"github.com/tutti-server/tutti/internal/table"
)

// probeTime is the time limit for opening one backend: a cold disk may take long to read a library of hundreds of
// megabytes.
const probeTime = time.Minute

// finding is the result of one check.
type finding struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"` // Text describes the component, or names what is missing and how to install it
}

// doctor opens each backend that needs more than this program, in its own process: an unsuitable library may end
// its process. It fails if a backend that the user named does not open.
func (p *program) doctor(ctx context.Context, args []string) error {
	args, serve, given := beforeServe(args)
	fs := p.flags("doctor")
	out := outputFlag(fs, formatText, formatJSON, formatYAML)
	probe := fs.String("probe", "", "open one backend `NAME` in this process and print its description")
	settings := options.BackendConfig{}
	backendFlags(fs, settings)
	names, err := parse(fs, args)
	if err != nil {
		return err
	}
	registry, err := p.components.Registry()
	if err != nil {
		return err
	}
	if *probe != "" {
		return p.probe(registry, settings, *probe)
	}
	list, err := nativeBackends(registry, names)
	if err != nil {
		return err
	}
	if _, ok := settings[backends.LibraryBackend][backends.KeyDirectory]; ok && len(names) == 0 {
		list = append(list, backends.LibraryBackend)
	}
	var found []finding
	for _, name := range list {
		found = append(found, examineBackend(ctx, name, settings.Args()))
	}
	var access []exposure.Entry
	if given || len(names) == 0 {
		if access, err = openTo(serve); err != nil {
			return err
		}
	}
	if err := p.printFindings(out, machine(ctx), found, access); err != nil {
		return err
	}
	for _, f := range found {
		if !f.OK && len(names) > 0 {
			return errReported
		}
	}
	return nil
}

// nativeBackends returns the backends to check: the named ones, by default all that need more than this program.
func nativeBackends(r *backends.Registry, names []string) ([]string, error) {
	for _, name := range names {
		if r.ByName(name) == nil {
			return nil, usagef("unknown backend '%s'%s, expected one of %s", name, meant("", name, r.Names()), strings.Join(r.Names(), ", "))
		}
	}
	if len(names) == 0 {
		names = slices.DeleteFunc(r.Names(), func(name string) bool { return !r.ByName(name).Native })
	}
	return names, nil
}

// probe opens a backend and prints its description.
func (p *program) probe(r *backends.Registry, settings options.BackendConfig, name string) error {
	f := r.ByName(name)
	if f == nil {
		return status.Errorf(status.InvalidArg, "unknown backend '%s'", name)
	}
	values, _ := settings.Settings(r)
	places := tensor.NewPlaces(tensor.NewPool())
	devices, err := openGPUs() // a backend may take another library where there are GPUs
	if err == nil {
		defer func() { _ = devices.Close() }() // nothing was made there
	}
	for _, d := range devices.Accelerators() {
		if err := places.Add(d); err != nil {
			return err
		}
	}
	b, err := f.New(backends.Options{Log: slog.New(slog.DiscardHandler), Config: values[name], Others: values, Places: places})
	if err != nil {
		return err
	}
	if c, ok := b.(backends.Checker); ok {
		if err := c.Check(); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	text := "part of this program"
	if d, ok := b.(backends.Describer); ok {
		text = d.Describe()
	}
	_, err = fmt.Fprintln(p.stdout, text)
	return errors.Join(err, b.Close())
}

// examineBackend starts this program again to open a backend with the settings of args.
func examineBackend(ctx context.Context, name string, args []string) finding {
	exe, err := os.Executable()
	if err != nil {
		return finding{name, false, err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, append([]string{"doctor", "--probe", name}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if err == nil {
		return finding{name, true, strings.TrimSpace(out.String())}
	}
	text := strings.TrimPrefix(strings.TrimSpace(errs.String()), "error: ")
	if text == "" {
		text = "opening it ended the process: " + err.Error()
	}
	return finding{name, false, text}
}

func (p *program) printFindings(out *output, machine, found []finding, access []exposure.Entry) error {
	all := map[string]any{"machine": machine, "backends": found}
	if access != nil {
		all["access"] = access
	}
	return out.print(p.stdout, all, func() error { return p.writeFindings(machine, found, access) })
}

func (p *program) writeFindings(machine, found []finding, access []exposure.Entry) error {
	var b strings.Builder
	for _, part := range []struct {
		title string
		list  []finding
	}{{"This machine", machine}, {"Backends", found}} {
		b.WriteString(paint(p.stdout, bold, part.title) + "\n")
		for _, f := range part.list {
			mark := paint(p.stdout, green, "ok")
			if !f.OK {
				mark = paint(p.stdout, yellow, "--")
			}
			fmt.Fprintf(&b, "  %s  %-14s %s\n", mark, f.Name, strings.ReplaceAll(f.Text, "\n", "\n                     "))
		}
	}
	if access != nil {
		b.WriteString(paint(p.stdout, bold, "Open to whom") + "\n")
		exposure.Write(&b, access)
	}
	_, err := p.stdout.Write([]byte(b.String()))
	return err
}

// sharedMemory is the folder of POSIX shared memory, which clients and Python workers use.
const sharedMemory = "/dev/shm"

// scarce is the size of shared memory below which doctor warns. For example, containers have 64 MiB by default,
// which the first region of a worker uses up.
const scarce = 256 << 20

// machine checks what backends and their clients need of the machine.
func machine(ctx context.Context) []finding {
	return []finding{
		{"system", runtime.GOOS == "linux", fmt.Sprintf("%s/%s, %d processors for this program", runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))},
		processor(),
		shared(),
		tool(ctx, "python3", "for the python backend and for fetching libraries", "--version"),
		tool(ctx, "g++", "for the pytorch backend's shim", "-dumpfullversion"),
		gpus(),
	}
}

// processor says in which precisions the processor computes fast.
func processor() finding {
	p := precision.Machine()
	return finding{"processor", len(p.Features) > 0, p.String()}
}

func shared() finding {
	var s syscall.Statfs_t
	if err := syscall.Statfs(sharedMemory, &s); err != nil {
		return finding{"shared memory", false, err.Error()}
	}
	total, free := s.Blocks*uint64(s.Bsize), s.Bavail*uint64(s.Bsize) //nolint:gosec // block sizes are positive
	text := fmt.Sprintf("%s: %d MiB, %d MiB free", sharedMemory, total>>20, free>>20)
	if total < scarce {
		return finding{"shared memory", false, text + ": start the container with --shm-size=1g"}
	}
	return finding{"shared memory", true, text}
}

// tool runs a program to print its version.
func tool(ctx context.Context, name, use, flag string) finding {
	path, err := exec.LookPath(name)
	if err != nil {
		return finding{name, false, "not found, wanted " + use}
	}
	out, err := exec.CommandContext(ctx, path, flag).Output()
	if err != nil {
		return finding{name, false, path + ": " + err.Error()}
	}
	return finding{name, true, strings.TrimSpace(string(out)) + ", " + path}
}

// gpus describes the GPUs that models would use.
func gpus() finding {
	open, err := openGPUs()
	if err != nil {
		return finding{"gpu", false, err.Error()}
	}
	var list []string
	for _, g := range open.List() {
		text := fmt.Sprintf("%s: %s, %d MiB, compute capability %.1f", g.Place, g.Name, g.Memory>>20, g.Capability)
		if g.Skipped != "" {
			text += ", not used: " + g.Skipped
		}
		list = append(list, text)
	}
	text := strings.Join(list, "; ") + "; the driver supports CUDA " + open.Version()
	if err := open.Close(); err != nil {
		return finding{"gpu", false, err.Error()}
	}
	return finding{"gpu", true, text}
}

// runtimeCommands are the commands below `tutti runtime`.
func runtimeCommands() []command {
	return []command{
		{
			name: "fetch", usage: "NAME [--dir DIR] [--from FILE]", summary: "Fetch the native library of a backend and print its path",
			examples: []string{"tutti runtime fetch onnxruntime", "tutti runtime fetch --dir /opt/tutti/runtime openvino", "tutti runtime fetch onnxruntime --from packages"},
			notes: "With --from nothing is downloaded: the packages are looked for by their size and SHA-256 in files of this machine. " +
				"A command that fails names those that it lacks, and how to download them elsewhere.",
			run: (*program).fetchRuntime, complete: completeRuntimes,
		},
		{
			name: "update", usage: "NAME [--dir DIR]", summary: "Fetch the release that this program is made for, and remove others",
			examples: []string{"tutti runtime update onnxruntime"},
			run:      (*program).updateRuntime, complete: completeRuntimes,
		},
		{
			name: "remove", usage: "NAME [--dir DIR]", summary: "Remove what was fetched of a library, also from the user's cache",
			examples: []string{"tutti runtime remove openvino"},
			run:      (*program).removeRuntime, complete: completeRuntimes,
		},
		{
			name: "list", summary: "List the native libraries and where they are", examples: []string{"tutti runtime list"},
			run: (*program).listRuntimes,
		},
		{
			name: "prepare", usage: "NAME LIBRARY", summary: "Complete a library that is on this machine already",
			notes:    "For example, it compiles PyTorch's shim beside libtorch_cpu.so.",
			examples: []string{"tutti runtime prepare pytorch /opt/libtorch/lib/libtorch_cpu.so"},
			run:      (*program).prepareRuntime, complete: completeRuntimes,
		},
	}
}

// runtimeName reads the flags of a command and the name of one runtime.
func runtimeName(fs *flag.FlagSet, args []string) (string, error) {
	rest, err := arguments(fs, args, 1, 1, "the name of one runtime")
	if err != nil {
		return "", err
	}
	var names []string
	for _, r := range runtimes.List() {
		names = append(names, r.Name)
	}
	if !slices.Contains(names, rest[0]) {
		return "", usagef("unknown runtime '%s'%s, expected one of %s", rest[0], meant("", rest[0], names), strings.Join(names, ", "))
	}
	return rest[0], nil
}

// fetchRuntime fetches a native library.
func (p *program) fetchRuntime(ctx context.Context, args []string) error {
	fs := p.flags("runtime fetch")
	dir := fs.String("dir", runtimes.Folder, "`folder` of fetched libraries")
	var from list
	out := outputFlag(fs, formatText, formatJSON, formatYAML)
	fs.Var(&from, "from", "`file` or folder with the packages, in place of a download: without a network; may be repeated")
	name, err := runtimeName(fs, args)
	if err != nil {
		return err
	}
	line := &liveLine{w: p.stderr, terminal: isTerminal(p.stderr)}
	path, err := (&runtimes.Fetcher{Progress: p.stderr, Transfer: line.transfer, From: from}).Fetch(ctx, name, *dir)
	if err != nil {
		return err
	}
	return p.prepare(ctx, out, &changedRuntime{Name: name, Path: path})
}

// updateRuntime replaces the releases of a runtime by the one of this program.
func (p *program) updateRuntime(ctx context.Context, args []string) error {
	fs := p.flags("runtime update")
	out := outputFlag(fs, formatText, formatJSON, formatYAML)
	dir := fs.String("dir", runtimes.Folder, "`folder` of fetched libraries")
	name, err := runtimeName(fs, args)
	if err != nil {
		return err
	}
	line := &liveLine{w: p.stderr, terminal: isTerminal(p.stderr)}
	path, removed, err := (&runtimes.Fetcher{Progress: p.stderr, Transfer: line.transfer}).Update(ctx, name, *dir)
	for _, folder := range removed {
		fmt.Fprintf(p.stderr, "removed %s\n", folder)
	}
	if err != nil {
		return err
	}
	return p.prepare(ctx, out, &changedRuntime{name, path, removed})
}

// removeRuntime removes what was fetched of a runtime.
func (p *program) removeRuntime(_ context.Context, args []string) error {
	fs := p.flags("runtime remove")
	out := outputFlag(fs, formatText, formatJSON, formatYAML)
	dir := fs.String("dir", "", "`folder` of fetched libraries; by default those that backends look in; the user's cache is always one")
	name, err := runtimeName(fs, args)
	if err != nil {
		return err
	}
	removed, err := (&runtimes.Fetcher{}).Remove(name, *dir)
	for _, folder := range removed {
		fmt.Fprintf(p.stderr, "removed %s\n", folder)
	}
	if err != nil {
		return err
	}
	return out.print(p.stdout, changedRuntime{Name: name, Removed: removed}, func() error { return nil })
}

// prepareRuntime completes a library that was not fetched.
func (p *program) prepareRuntime(ctx context.Context, args []string) error {
	fs := p.flags("runtime prepare")
	out := outputFlag(fs, formatText, formatJSON, formatYAML)
	rest, err := arguments(fs, args, 2, 2, "the name of a runtime and its library")
	if err != nil {
		return err
	}
	if _, err := os.Stat(rest[1]); err != nil {
		return err
	}
	return p.prepare(ctx, out, &changedRuntime{Name: rest[0], Path: rest[1]})
}

// changedRuntime is a runtime that was fetched, updated, prepared or removed, as the commands print it.
type changedRuntime struct {
	Name    string   `json:"name"`
	Path    string   `json:"path,omitempty"`    // of the library
	Removed []string `json:"removed,omitempty"` // folders
}

// prepare makes what a backend needs beside its library, and prints the library's path.
func (p *program) prepare(ctx context.Context, out *output, r *changedRuntime) error {
	registry, err := p.components.Registry()
	if err != nil {
		return err
	}
	if f := registry.ByName(strings.TrimSuffix(r.Name, "-gpu")); f != nil && f.Prepare != nil {
		if err := f.Prepare(ctx, r.Path, p.stderr); err != nil {
			return err
		}
	}
	return out.print(p.stdout, r, func() error {
		_, err := fmt.Fprintln(p.stdout, r.Path)
		return err
	})
}

// listRuntimes prints every runtime with the path of its library, or with the command that fetches it.
func (p *program) listRuntimes(_ context.Context, args []string) error {
	fs := p.flags("runtime list")
	out := outputFlag(fs, formatTable, formatJSON, formatYAML)
	if _, err := arguments(fs, args, 0, 0, "no arguments"); err != nil {
		return err
	}
	list := []foundRuntime{}
	for _, r := range runtimes.List() {
		row := foundRuntime{Name: r.Name, Library: r.Title, Found: true}
		path, err := runtimes.Find(r.Name, "")
		if row.Path = path; err != nil {
			row.Found, row.Path, row.Missing = false, "", err.Error()
		}
		list = append(list, row)
	}
	return out.print(p.stdout, list, func() error {
		rows := [][]string{{"NAME", "LIBRARY", "STATUS", "PATH OR WHAT TO DO"}}
		for _, r := range list {
			found := "found"
			if !r.Found {
				found = "missing"
			}
			rows = append(rows, []string{r.Name, r.Library, found, r.Path + r.Missing})
		}
		table.Left(p.stdout, rows)
		return nil
	})
}

// foundRuntime is a runtime as list prints it.
type foundRuntime struct {
	Name    string `json:"name"`
	Library string `json:"library"`
	Found   bool   `json:"found"`
	Path    string `json:"path,omitempty"`
	Missing string `json:"missing,omitempty"` // how to fetch it
}
