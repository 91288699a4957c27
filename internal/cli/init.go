package cli

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/starter"
)

// starters are small repositories of native steps, which need no further files.
//
//go:embed starter
var starters embed.FS

const (
	starterRoot  = "starter"
	starterUsual = "text"
	pythonName   = "python" // both the backend and its starter
)

// init writes a small repository: one that the program has, or one around a model file.
func (p *program) init(ctx context.Context, args []string) error {
	fs := p.flags("init")
	o, settings := &starter.Options{}, options.BackendConfig{}
	fs.StringVar(&o.Model, "model", "", "`file` of a model to write a repository around: ONNX, OpenVINO (.xml), SavedModel (folder), TorchScript (.pt), torch.export (.pt2), TensorRT (.plan), model.py, or a forest: XGBoost (.ubj, .json, .model), LightGBM (.txt), treelite (.tl)")
	fs.StringVar(&o.Labels, "labels", "", "`file` with the names of the model's classes: one per line, JSON, or the data.yaml of Ultralytics; by default what is found beside the model")
	fs.StringVar(&o.Tokenizer, "tokenizer", "", "`file` of the model's tokenizer: tokenizer.json, vocab.txt, ..., or its folder; by default what is found beside the model")
	fs.StringVar(&o.Kind, "kind", "", "`kind` of the model: "+strings.Join(starter.Kinds(), ", ")+"; by default a guess from its inputs and outputs")
	fs.StringVar(&o.Name, "name", "", "`name` of the ensemble; by default that of the model file")
	out := outputFlag(fs, formatText, formatJSON, formatYAML)
	backendFlags(fs, settings)
	const expected = "a folder and what to start with"
	rest, err := arguments(fs, args, 1, 2, expected)
	if err != nil {
		return err
	}
	if rest[0] == "" {
		return misused("init", expected)
	}
	if o.Model != "" || given(fs) {
		return p.initModel(ctx, out, rest, o, settings)
	}
	kind := starterUsual
	if len(rest) == 2 {
		kind = rest[1]
	}
	entries, err := starters.ReadDir(starterRoot)
	if err != nil {
		return err
	}
	var kinds []string
	for _, e := range entries {
		kinds = append(kinds, e.Name())
	}
	if !slices.Contains(kinds, kind) {
		return usagef("unknown kind '%s', expected one of %s", kind, strings.Join(kinds, ", "))
	}
	if err := writeStarter(rest[0], kind); err != nil {
		return err
	}
	return out.print(p.stdout, writtenRepository{Folder: rest[0], Kind: kind}, func() error {
		_, err := fmt.Fprintf(p.stdout, "Wrote %s. Check it and serve it:\n  tutti validate %s\n  tutti serve --model-repository %[2]s\n", rest[0], shellWord(rest[0]))
		return err
	})
}

// given reports whether a flag about a model was set.
func given(set *flag.FlagSet) (found bool) {
	set.Visit(func(f *flag.Flag) { found = found || f.Name != "o" && f.Name != "format" })
	return found
}

// initModel writes a repository around a model file. After an error nothing is left in the folder.
func (p *program) initModel(ctx context.Context, out *output, rest []string, o *starter.Options, settings options.BackendConfig) error {
	switch {
	case o.Model == "":
		return usagef("expected --model with the flags --labels, --tokenizer, --kind and --name, and those of backends")
	case len(rest) > 1:
		return usagef("expected --model or '%s', not both: --kind says what the model is", rest[1])
	case o.Kind != "" && !slices.Contains(starter.Kinds(), o.Kind):
		return usagef("unknown --kind '%s', expected one of %s", o.Kind, strings.Join(starter.Kinds(), ", "))
	}
	dir := rest[0]
	if err := isVacant(dir); err != nil {
		return err
	}
	o.Dir = dir
	o.Ports = func(m *starter.Model) error { return p.readPorts(ctx, m, settings) }
	r, s, err := p.starterIn(ctx, dir, o, settings)
	if broken := (*unloadable)(nil); errors.As(err, &broken) {
		o.Refine = true
		if refined, again, failed := p.starterIn(ctx, dir, o, settings); failed == nil {
			r, s, err = refined, again, nil
		}
	}
	if err != nil {
		return err
	}
	return out.print(p.stdout, describeWritten(dir, r, s), func() error { return p.describeInit(dir, o.Model, r, s) })
}

// starterIn writes a repository and sends its sample request.
func (p *program) starterIn(ctx context.Context, dir string, o *starter.Options, settings options.BackendConfig) (r *starter.Repository, s *sampled, err error) {
	if r, err = starter.Build(o); err != nil {
		return nil, nil, err
	}
	err = fill(dir, func(tmp string) error {
		if err := r.Write(tmp); err != nil {
			return err
		}
		if s, err = p.record(ctx, tmp, r, settings); err != nil {
			return err
		}
		return errors.Join(s.write(tmp, r), r.WriteReadme(tmp, s.golden))
	})
	return r, s, err
}

// isVacant returns an error unless a folder is missing or empty.
func isVacant(dir string) error {
	switch entries, err := os.ReadDir(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("'%s' cannot be written to: expected a new or empty folder: %w", dir, err)
	case len(entries) > 0:
		return fmt.Errorf("folder '%s' is not empty: expected a new or empty one, nothing was written", dir)
	}
	return nil
}

// fill calls write with a folder inside of dir, and moves its content into dir. After an error it leaves dir as it was.
func fill(dir string, write func(tmp string) error) (err error) {
	made, err := makeFolder(dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && made != "" {
			err = errors.Join(err, os.RemoveAll(made))
		}
	}()
	tmp, err := os.MkdirTemp(dir, ".tutti-init-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := write(tmp); err != nil {
		return err
	}
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for i, e := range entries {
		if err := os.Rename(filepath.Join(tmp, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			for _, moved := range entries[:i] {
				err = errors.Join(err, os.RemoveAll(filepath.Join(dir, moved.Name())))
			}
			return err
		}
	}
	return nil
}

// makeFolder makes a folder and those above it. It returns the topmost one that was missing, or "".
func makeFolder(dir string) (made string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = at
	}
	return made, os.MkdirAll(dir, 0o755) //nolint:gosec // a repository is for everybody
}

// writtenRepository is what init has written, as it prints it for programs.
type writtenRepository struct {
	Folder        string         `json:"folder"`
	Kind          string         `json:"kind"`
	Ensemble      string         `json:"ensemble,omitempty"`
	Models        []writtenModel `json:"models,omitempty"`
	Notes         []string       `json:"notes,omitempty"`          // Notes are guesses that a person should check
	Golden        bool           `json:"golden,omitempty"`         // Golden is true if the repository has a golden request
	GoldenMissing string         `json:"golden_missing,omitempty"` // GoldenMissing is the reason that it has none
	Commands      []string       `json:"commands,omitempty"`       // Commands send the sample request, from the folder
}

// writtenModel is a model of a writtenRepository.
type writtenModel struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// describeWritten returns what init prints for programs about a repository around a model file.
func describeWritten(dir string, r *starter.Repository, s *sampled) writtenRepository {
	w := writtenRepository{
		Folder: dir, Kind: r.Kind, Ensemble: r.Name, Notes: r.Notes, Golden: s.golden, GoldenMissing: s.missing, Commands: r.Commands(),
	}
	for i := range r.Folders {
		w.Models = append(w.Models, writtenModel{r.Folders[i].Name, r.Folders[i].Doc()})
	}
	return w
}

// describeInit prints what was written and what to do next.
func (p *program) describeInit(dir, model string, r *starter.Repository, s *sampled) error {
	var t strings.Builder
	folder := shellWord(dir)
	fmt.Fprintf(&t, "Wrote %s around %s: the ensemble '%s', kind %s.\n", dir, model, r.Name, r.Kind)
	for _, f := range r.Folders {
		fmt.Fprintf(&t, "  %-*s  %s\n", longest(r.Folders), f.Name, f.Doc())
	}
	if len(r.Notes) > 0 {
		t.WriteString("\nCheck what was guessed:\n")
		for _, n := range r.Notes {
			fmt.Fprintf(&t, "  - %s\n", n)
		}
	}
	if s.resp != nil {
		t.WriteString("\nThe model's response to the sample request:\n")
		for i := range s.resp.Outputs {
			fmt.Fprintf(&t, "  %s %s\n", s.resp.Outputs[i].Name, abbreviate(&s.resp.Outputs[i]))
		}
	}
	if s.missing != "" {
		fmt.Fprintf(&t, "\nThere is no golden request: %s.\n", s.missing)
	}
	t.WriteString("\nTry it:\n")
	if s.fetch != "" {
		fmt.Fprintf(&t, "  %s\n", s.fetch)
	}
	fmt.Fprintf(&t, "  tutti validate %[1]s\n  tutti serve --model-repository %[1]s\n", folder)
	if list := r.Commands(); len(list) > 0 {
		fmt.Fprintf(&t, "and in another terminal, in %s:\n  %s\n", folder, list[0])
	}
	_, err := p.stdout.Write([]byte(t.String()))
	return err
}

// plainWord matches the words that shells take as they are.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shellWord returns a word as a command line has it: in quotes where it needs them.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func longest(list []starter.Folder) int {
	return len(slices.MaxFunc(list, func(a, b starter.Folder) int { return cmp.Compare(len(a.Name), len(b.Name)) }).Name)
}

// writeStarter copies a starter into dir, which must be empty or missing. It writes no empty folders, which git
// would drop: neither an ensemble nor a native step needs a version folder.
func writeStarter(dir, kind string) error {
	if err := isVacant(dir); err != nil {
		return err
	}
	from, err := fs.Sub(starters, starterRoot+"/"+kind)
	if err != nil {
		return err
	}
	return fs.WalkDir(from, ".", func(path string, e fs.DirEntry, err error) error {
		to := filepath.Join(dir, filepath.FromSlash(path))
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(to, 0o755) //nolint:gosec // a repository is for everybody
		}
		data, err := fs.ReadFile(from, path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644) //nolint:gosec // a repository is for everybody
	})
}
