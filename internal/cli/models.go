package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/exposure"
	"github.com/tutti-server/tutti/internal/gpu"
	"github.com/tutti-server/tutti/internal/lint"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// config prints a model's configuration as the configuration endpoint returns it.
func (p *program) config(ctx context.Context, args []string) error {
	set := p.flags("config")
	settings := options.BackendConfig{}
	out := outputFlag(set, formatText, formatJSON, formatYAML)
	name := set.String("model-config-name", "", "`name`: use configs/NAME.pbtxt if the model has it")
	backendFlags(set, settings)
	rest, err := arguments(set, args, 1, 1, "the folder of a model")
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(rest[0])
	if err != nil {
		return err
	}
	if err := isModel(dir, rest[0], *name); err != nil {
		return err
	}
	r, err := p.look(ctx, repository.Settings{
		Roots: []string{filepath.Dir(dir)}, Only: []string{filepath.Base(dir)}, ConfigName: *name,
	}, settings)
	if err != nil {
		return err
	}
	cfg, err := p.completed(r.Repository, config.Source{Dir: dir, Name: filepath.Base(dir), ConfigName: *name})
	if err == nil {
		err = p.printConfig(cfg, out)
	}
	return errors.Join(err, r.Close(ctx))
}

// backendFlags adds the flags with which commands load models as a server does.
func backendFlags(fs *flag.FlagSet, settings options.BackendConfig) {
	fs.Var(settings, "backend-config", "`backend,key=value`: a setting of a backend; may be repeated")
	fs.Func("backend-directory", "`folder` of libraries made for Triton, NAME/libtriton_NAME.so (default "+backends.DefaultDirectory+")", settings.SetDirectory)
}

// isModel returns an error if a folder, which the user named called, is not the folder of a model.
func isModel(dir, called, configName string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("the folder '%s' cannot be read: %w", called, err)
	}
	if _, err := os.Stat(config.PathOf(dir, configName)); !errors.Is(err, fs.ErrNotExist) {
		return nil // reading it reports the error
	}
	for _, e := range entries {
		if _, ok := config.VersionOf(e.Name()); ok {
			return nil
		}
	}
	return fmt.Errorf("'%s' holds no model, expected a %s or a version folder in it", called, config.FileName)
}

// completed returns the configuration that a server would return. Without the model's runtime, it has only the
// values that follow from the configuration.
func (p *program) completed(r *repository.Repository, s config.Source) (*modelconfig.ModelConfig, error) {
	cfg, err := r.Config(s.Name, 0)
	if err == nil {
		return cfg, nil
	}
	if err = failureOf(r, s.Name, err); status.CodeOf(err) != status.Unavailable {
		return nil, err
	}
	fmt.Fprintf(p.stderr, "not completed from the model's file: %v\n", err)
	cfg, list := config.Read(s, nil)
	return cfg, config.FirstError(list)
}

// printConfig prints a configuration, as JSON and YAML in the form of the configuration endpoint. As text it ends with comments that explain
// the parameters of an ensemble's data flow.
func (p *program) printConfig(cfg *modelconfig.ModelConfig, out *output) error {
	raw, err := config.JSON(cfg)
	if err != nil {
		return err
	}
	return out.print(p.stdout, json.RawMessage(raw), func() error {
		text := config.Text(cfg)
		for _, m := range config.Meanings(cfg) {
			text = fmt.Appendf(text, "# %s\n", m)
		}
		_, err := p.stdout.Write(text)
		return err
	})
}

// plan prints the execution plan of an ensemble.
func (p *program) plan(ctx context.Context, args []string) error {
	fs := p.flags("plan")
	after := fs.String("after", "", "stop after this `pass` of the compiler and print the incomplete plan")
	out := outputFlag(fs, formatText, formatJSON, formatYAML, formatDOT, formatSVG)
	settings := options.BackendConfig{}
	backendFlags(fs, settings)
	rest, err := arguments(fs, args, 2, 2, "a repository and a model")
	if err != nil {
		return err
	}
	r, err := p.look(ctx, repository.Settings{Roots: rest[:1], Only: rest[1:], GPUFallback: true}, settings)
	if err != nil {
		return err
	}
	if why := r.MissingGPU(); why != nil {
		fmt.Fprintf(p.stderr, "warning: models ask for GPUs and none is used here, so their steps are on the host: %v; %s names another driver library\n", why, driverVariable)
	}
	return errors.Join(printPlan(p.stdout, r.Repository, rest[1], *after, out), r.Close(ctx))
}

// The further formats of a plan: for Graphviz, and a picture.
const (
	formatDOT = "dot"
	formatSVG = "svg"
)

func printPlan(w io.Writer, r *repository.Repository, name, after string, out *output) error {
	if after != "" {
		text, err := r.Stage(name, after)
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, text)
		return err
	}
	compiled, err := r.Plan(name, 0)
	if err != nil {
		return failureOf(r, name, err)
	}
	switch out.format {
	case formatDOT:
		return compiled.DOT(w)
	case formatSVG:
		return compiled.SVG(w, r.Kind)
	}
	graph, err := r.Graph(name, 0)
	if err != nil {
		return err
	}
	return out.print(w, graph, func() error {
		_, err := io.WriteString(w, compiled.Text())
		return err
	})
}

// look opens repositories for commands that do not serve them.
func (p *program) look(ctx context.Context, s repository.Settings, settings options.BackendConfig) (*openRepository, error) {
	registry, err := p.components.Registry()
	if err != nil {
		return nil, err
	}
	s.Backends = registry
	s.BackendConfig, _ = settings.Settings(registry)
	s.Alloc, s.Metrics, s.Log = tensor.NewPool(), telemetry.NewMetrics(), slog.New(slog.DiscardHandler)
	gpus, err := openGPUs()
	s.Accelerators, s.NoAccelerator = gpus.Accelerators(), err
	r, err := repository.Open(ctx, s)
	if err != nil {
		return nil, errors.Join(err, gpus.Close())
	}
	return &openRepository{r, gpus}, nil
}

// openRepository is a repository that a command examines, with the GPUs of its models.
type openRepository struct {
	*repository.Repository
	gpus *gpu.Devices
}

// Close closes the repository and the GPUs.
func (r *openRepository) Close(ctx context.Context) error {
	return errors.Join(r.Repository.Close(ctx), r.gpus.Close())
}

// driverVariable is the environment variable of the option --cuda-driver.
const driverVariable = "TUTTI_CUDA_DRIVER"

// openGPUs opens the GPUs that `tutti serve` would use without options.
func openGPUs() (*gpu.Devices, error) {
	return gpu.Open(gpu.Settings{Driver: os.Getenv(driverVariable), Capability: gpu.DefaultCapability})
}

// failureOf returns the reason that a model was not loaded, by default err.
func failureOf(r *repository.Repository, model string, err error) error {
	for _, f := range r.Failures() {
		if f.Model == model {
			return f.Err
		}
	}
	return err
}

// validate prints every problem of repositories. It loads the models whose runtimes are on this machine.
func (p *program) validate(ctx context.Context, args []string) error {
	args, serve, given := beforeServe(args)
	fs := p.flags("validate")
	settings := options.BackendConfig{}
	out := outputFlag(fs, formatText, formatJSON, formatYAML, lint.SARIF)
	strict := fs.Bool("strict", false, "also refuse what Triton would not accept")
	quiet := fs.Bool("quiet", false, "print no notices: errors and warnings only")
	name := fs.String("model-config-name", "", "`name`: use configs/NAME.pbtxt of models that have it")
	strictEnsembles := fs.Bool("strict-ensemble-config", false, "read ensembles as Triton does: nothing is inferred")
	strictParams := fs.Bool("strict-parameters", false, "refuse unknown parameters")
	fallback := fs.String("gpu-fallback", options.FallbackNone, "`where`: cpu accepts models for missing GPUs, as serve --gpu-fallback=cpu does")
	backendFlags(fs, settings)
	roots, err := parse(fs, args)
	switch {
	case err != nil:
		return err
	case len(roots) == 0:
		return misused("validate", "the folder of a model repository")
	case *fallback != options.FallbackNone && *fallback != options.FallbackCPU:
		return usagef("unknown --gpu-fallback '%s', expected none or cpu", *fallback)
	}
	var access []exposure.Entry
	if given {
		if access, err = openTo(serve); err != nil {
			return err
		}
	}
	r, err := p.report(ctx, lint.Settings{
		Roots: roots, ConfigName: *name, Options: config.Options{StrictEnsembleConfig: *strictEnsembles, StrictParams: *strictParams, GPUFallback: *fallback == options.FallbackCPU},
	}, settings)
	if err != nil {
		return err
	}
	if *strict {
		r.Diagnostics = config.Strict(r.Diagnostics)
	}
	if *quiet {
		r.Diagnostics = slices.DeleteFunc(r.Diagnostics, func(d config.Diagnostic) bool { return d.Severity == config.Notice })
	}
	form := out.format
	if form == formatYAML {
		form = lint.JSON
	}
	var b bytes.Buffer
	if err := writeReport(&b, r, access, form); err != nil {
		return err
	}
	if out.format == formatYAML {
		err = writeYAML(p.stdout, json.RawMessage(b.Bytes()))
	} else {
		_, err = b.WriteTo(p.stdout)
	}
	if err != nil {
		return err
	}
	if config.HasFault(r.Diagnostics) {
		return errReported
	}
	return nil
}

// report checks repositories.
func (p *program) report(ctx context.Context, s lint.Settings, settings options.BackendConfig) (r *lint.Report, err error) {
	if s.Backends, err = p.components.Registry(); err != nil {
		return nil, err
	}
	s.BackendConfig, _ = settings.Settings(s.Backends)
	repo, err := p.look(ctx, repository.Settings{
		Roots: s.Roots, ConfigName: s.ConfigName, StrictEnsembleConfig: s.Options.StrictEnsembleConfig, StrictParams: s.Options.StrictParams, GPUFallback: s.Options.GPUFallback,
	}, settings)
	if err != nil {
		return nil, err
	}
	s.Repository = repo.Repository
	return lint.Examine(s), repo.Close(ctx)
}
