package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/status"
)

// Code is the stable name of a rule. For example, TUT1001. A code never changes its meaning.
type Code string

// Severity is the effect of a diagnostic on the model.
type Severity string

// The severities.
const (
	// Fault prevents the model from being served.
	Fault Severity = "error"
	// Warning is a likely mistake, or something that could not be checked.
	Warning Severity = "warning"
	// Notice is information: a field without effect, or a value that was filled in.
	Notice Severity = "notice"
)

// Diagnostic is one finding about a model's configuration.
type Diagnostic struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Model    string   `json:"model"`
	// File is the file of the finding. Line and Column count from 1; 0 means no position.
	File   string      `json:"file"`
	Line   int         `json:"line"`
	Column int         `json:"column"`
	Field  string      `json:"field"`  // the path of the field. For example, input[0].dims. Empty: no field.
	Reason string      `json:"reason"` // describes the problem, with Triton's text where Triton has one
	Fix    string      `json:"fix"`    // what to do. Empty if the reason says it.
	status status.Code // the code of the error that a fault becomes
}

// Err returns a fault as an error whose text is the reason. It returns nil for a warning or notice. Diagnosed
// converts the error back.
func (d *Diagnostic) Err() error {
	if d.Severity != Fault {
		return nil
	}
	return d.wrap(nil)
}

// String returns the diagnostic on one line, and the fix on a second one.
func (d *Diagnostic) String() string {
	var b strings.Builder
	if d.File != "" {
		b.WriteString(printable(d.File) + ":")
		if d.Line > 0 {
			fmt.Fprintf(&b, "%d:%d:", d.Line, d.Column)
		}
		b.WriteByte(' ')
	}
	fmt.Fprintf(&b, "%s %s: %s", d.Severity, d.Code, printable(d.Reason))
	if d.Fix != "" {
		b.WriteString("\n    fix: ")
		b.WriteString(printable(d.Fix))
	}
	return b.String()
}

// printable escapes control characters: reasons quote names from the configuration, which could otherwise control a
// terminal.
func printable(text string) string {
	if !strings.ContainsFunc(text, unicode.IsControl) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == utf8.RuneError, unicode.IsControl(r) && r != '\t':
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func (d *Diagnostic) wrap(err error) error {
	return &status.Error{Code: d.status, Msg: d.Reason, Err: &cause{*d, err}}
}

// cause is a diagnostic in an error chain.
type cause struct {
	Diagnostic

	err error
}

// Error returns the reason.
func (c *cause) Error() string { return c.Reason }

// Unwrap returns the cause, or nil.
func (c *cause) Unwrap() error { return c.err }

// Diagnosed returns the outermost diagnostic that err carries. It reports false if there is none.
func Diagnosed(err error) (Diagnostic, bool) {
	if c, ok := errors.AsType[*cause](err); ok {
		return c.Diagnostic, true
	}
	return Diagnostic{}, false
}

// Errorf returns an error with a rule and a field, which Diagnosed reads back. A %w verb keeps its operand as the
// cause.
func Errorf(code Code, field, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	d := newDiagnostic(code, field, err.Error())
	d.Severity = Fault
	return d.wrap(errors.Unwrap(err))
}

// Coded attaches a rule and a field to err. Text and status stay.
func Coded(code Code, field string, err error) error {
	d := newDiagnostic(code, field, err.Error())
	d.Severity, d.status = Fault, status.CodeOf(err)
	return d.wrap(err)
}

// amend changes the diagnostic of err. An error without a rule is returned unchanged.
func amend(err error, change func(*Diagnostic)) error {
	if c, ok := errors.AsType[*cause](err); ok {
		change(&c.Diagnostic)
	}
	return err
}

// WithFix replaces the advice of err. An error without a rule is returned unchanged.
func WithFix(err error, fix string) error { return amend(err, func(d *Diagnostic) { d.Fix = fix }) }

// At sets the position of err in a file other than the configuration. Line 0: none. An error without a rule is
// returned unchanged.
func At(err error, file string, line int) error {
	return amend(err, func(d *Diagnostic) {
		d.File, d.Line = file, line
		if line > 0 {
			d.Column = 1
		}
	})
}

// WithField sets the field of err unless it has one.
func WithField(err error, field string) error {
	return amend(err, func(d *Diagnostic) { d.Field = cmp.Or(d.Field, field) })
}

// newDiagnostic returns a diagnostic with the severity and fix of its rule.
func newDiagnostic(code Code, field, reason string) Diagnostic {
	d := Diagnostic{Code: code, Severity: Fault, Field: field, Reason: reason, status: status.InvalidArg}
	if r := rule(code); r != nil {
		d.Fix, d.Severity = r.Fix, r.Severity
		if r.Unsupported {
			d.status = status.Unsupported
		}
	}
	return d
}

// Strict returns list with the diagnostics of rules that Triton does not have turned into faults.
func Strict(list []Diagnostic) []Diagnostic {
	list = slices.Clone(list)
	for i := range list {
		if r := rule(list[i].Code); r != nil && r.Extension {
			list[i].Severity = Fault
		}
	}
	return list
}

// HasFault reports whether list has a fault.
func HasFault(list []Diagnostic) bool {
	return slices.ContainsFunc(list, func(d Diagnostic) bool { return d.Severity == Fault })
}

// Rule describes one code.
type Rule struct {
	Code        Code
	Severity    Severity
	Doc         string // says in one sentence what the rule finds
	Fix         string // the advice, if one text fits every case
	Extension   bool   // marks what this server accepts and Triton rejects
	Unsupported bool   // marks something valid that is not implemented
}

// The codes. TUT1: the text; TUT2: one model; TUT3: ensembles; TUT4: what is not
// honoured; TUT5: the repository; TUT6: what only this server accepts.
const (
	BadText       Code = "TUT1001"
	UnknownField  Code = "TUT1002"
	UnknownEnum   Code = "TUT1003"
	WrongType     Code = "TUT1004"
	OutOfRange    Code = "TUT1005"
	Repeated      Code = "TUT1006"
	TooLarge      Code = "TUT1007"
	Unreadable    Code = "TUT1008"
	BadOverride   Code = "TUT1009"
	NoFile        Code = "TUT1010"
	NoName        Code = "TUT2001"
	OtherFolder   Code = "TUT2002"
	NoBackend     Code = "TUT2003"
	BadPlatform   Code = "TUT2004"
	BadPair       Code = "TUT2005"
	BadMaxBatch   Code = "TUT2006"
	PreferredSize Code = "TUT2007"
	Priorities    Code = "TUT2008"
	Ordering      Code = "TUT2009"
	InstanceGroup Code = "TUT2010"
	PortName      Code = "TUT2011"
	PortType      Code = "TUT2012"
	PortDims      Code = "TUT2013"
	PortFormat    Code = "TUT2014"
	ShapeTensor   Code = "TUT2015"
	PortTwice     Code = "TUT2016"
	FileOutside   Code = "TUT2017"
	Sequence      Code = "TUT2018"
	Warmup        Code = "TUT2019"
	CacheClash    Code = "TUT2020"
	TensorNaming  Code = "TUT2021"
	Reshape       Code = "TUT2022"
	BatchTensor   Code = "TUT2023"
	Versions      Code = "TUT2024"
	MixedNaming   Code = "TUT2025"
	QueuePolicy   Code = "TUT2026"
	Metrics       Code = "TUT2027"
	UnknownParam  Code = "TUT2028"
	StepParam     Code = "TUT2029"
	BadParam      Code = "TUT2030"

	EnsembleFlow  Code = "TUT3001"
	EnsembleField Code = "TUT3002"
	EnsembleStep  Code = "TUT3003"
	TensorTwice   Code = "TUT3004"
	InputUnused   Code = "TUT3005"
	OutputUnused  Code = "TUT3006"
	NotWritten    Code = "TUT3007"
	TensorUnused  Code = "TUT3008"
	InputWritten  Code = "TUT3009"
	TypesDiffer   Code = "TUT3010"
	ShapesDiffer  Code = "TUT3011"
	NoSuchPort    Code = "TUT3012"
	InputUnmapped Code = "TUT3013"
	BatchTooSmall Code = "TUT3014"
	BadDependency Code = "TUT3015"
	NoSuchModel   Code = "TUT3016"
	Circle        Code = "TUT3017"
	NotCompiled   Code = "TUT3018"
	MixedStreams  Code = "TUT3019"
	NotResident   Code = "TUT3020"
	FlowParam     Code = "TUT3021"
	MixedRows     Code = "TUT3022"

	NotHonoured   Code = "TUT4001"
	Hint          Code = "TUT4002"
	SharedLibrary Code = "TUT4003"
	NotBuiltIn    Code = "TUT4004"
	NoGPU         Code = "TUT4005"
	OnCPU         Code = "TUT4006"

	NotLoaded   Code = "TUT5001"
	NoRuntime   Code = "TUT5002"
	NoVersion   Code = "TUT5003"
	FolderName  Code = "TUT5004"
	LabelFile   Code = "TUT5005"
	NoModels    Code = "TUT5006"
	Duplicate   Code = "TUT5007"
	ModelFile   Code = "TUT5008"
	Mismatch    Code = "TUT5009"
	PythonModel Code = "TUT5010"

	PythonPlatform      Code = "TUT6001"
	NoModelVersion      Code = "TUT6002"
	InferredPort        Code = "TUT6003"
	VersionlessEnsemble Code = "TUT6004"
	OwnBackend          Code = "TUT6005"
	PaddingParam        Code = "TUT6006"
	InferredTensor      Code = "TUT6007"
	FlowExtension       Code = "TUT6008"
)

// Rules returns every rule, sorted by code.
func Rules() []Rule { return slices.Clone(rules) }

func rule(code Code) *Rule {
	if i := slices.IndexFunc(rules, func(r Rule) bool { return r.Code == code }); i >= 0 {
		return &rules[i]
	}
	return nil
}

// rules are sorted by code.
var rules = []Rule{
	{Code: BadText, Severity: Fault, Doc: "The text is not in protobuf text format.", Fix: "correct the text at this place"},
	{Code: UnknownField, Severity: Fault, Doc: "The message has no field of this name.", Fix: "remove the field, or correct its name"},
	{Code: UnknownEnum, Severity: Fault, Doc: "The field's enumeration has no such value.", Fix: "write one of the enumeration's names, without quotes"},
	{Code: WrongType, Severity: Fault, Doc: "The value does not have the field's type.", Fix: "write a value of the field's type"},
	{Code: OutOfRange, Severity: Fault, Doc: "A number is outside the range of the field's type.", Fix: "write a number that fits the field"},
	{Code: Repeated, Severity: Fault, Doc: "A field that is not repeated is set twice.", Fix: "keep one of the two"},
	{Code: TooLarge, Severity: Fault, Doc: "The configuration is too large.", Fix: "check that this is a configuration"},
	{Code: Unreadable, Severity: Fault, Doc: "The configuration cannot be read.", Fix: "make it a file that the server may read"},
	{Code: BadOverride, Severity: Fault, Doc: "The JSON of a load request is not a valid configuration.", Fix: "correct the JSON at this place"},
	{Code: NoFile, Severity: Fault, Doc: "There is no configuration, and the backend cannot be inferred from the model's files.", Fix: "write a config.pbtxt that names the backend"},
	{Code: NoName, Severity: Fault, Doc: "A configuration has no name.", Fix: "set name to the name of the model's folder, or leave it out"},
	{Code: OtherFolder, Severity: Fault, Doc: "The name differs from the name of the model's folder.", Fix: "rename the folder, or remove the name"},
	{Code: NoBackend, Severity: Fault, Doc: "Neither backend nor platform is set, and the backend cannot be inferred from the files.", Fix: `set backend, for example backend: "onnxruntime"`},
	{Code: BadPlatform, Severity: Fault, Doc: "The platform is unknown.", Fix: "set backend instead of platform"},
	{Code: BadPair, Severity: Fault, Doc: "Platform and backend name different backends.", Fix: "remove platform"},
	{Code: BadMaxBatch, Severity: Fault, Doc: "The batch size is negative.", Fix: "write 0 for a model without a batch dimension"},
	{Code: PreferredSize, Severity: Fault, Doc: "A preferred batch size is not between 1 and the batch size.", Fix: "keep every preferred size within 1 and max_batch_size"},
	{Code: Priorities, Severity: Fault, Doc: "A priority is not one of the levels.", Fix: "keep every priority within 1 and priority_levels"},
	{Code: Ordering, Severity: Fault, Doc: "preserve_ordering contradicts priorities or delaying.", Fix: "remove preserve_ordering, or what it contradicts"},
	{Code: InstanceGroup, Severity: Fault, Doc: "An instance group contradicts itself.", Fix: "correct the instance group"},
	{Code: PortName, Severity: Fault, Doc: "An input or output has no name.", Fix: "set its name"},
	{Code: PortType, Severity: Fault, Doc: "An input or output has no data type, and it cannot be inferred from the model.", Fix: "set data_type, for example TYPE_FP32"},
	{Code: PortDims, Severity: Fault, Doc: "An input or output has no dims, or one below 1 that is not -1.", Fix: "list every dimension after the batch dimension, -1 for a variable one; [ 1 ] for a single value"},
	{Code: PortFormat, Severity: Fault, Doc: "An image format is set on a tensor without 3 dimensions.", Fix: "give the input 3 dims, or remove format"},
	{Code: ShapeTensor, Severity: Fault, Doc: "A shape tensor is set for another backend than TensorRT.", Fix: "remove is_shape_tensor"},
	{Code: PortTwice, Severity: Fault, Doc: "Two inputs or two outputs have the same name.", Fix: "remove or rename one of them"},
	{Code: FileOutside, Severity: Fault, Doc: "A file name points outside the model's folder.", Fix: "put the file into the model's folder and name it relative to it"},
	{Code: Sequence, Severity: Fault, Doc: "Sequence batching contradicts itself.", Fix: "correct sequence_batching"},
	{Code: Warmup, Severity: Fault, Doc: "A warm-up request cannot be made.", Fix: "give every warm-up input a type, fixed dims and its data"},
	{Code: CacheClash, Severity: Fault, Doc: "The response cache is on for a model that it cannot serve.", Fix: "remove response_cache"},
	{Code: TensorNaming, Severity: Fault, Doc: "A tensor's name does not follow the backend's convention.", Fix: "name tensors NAME__INDEX for PyTorch, INPUT_0 and OUTPUT_0 for OneFlow"},
	{Code: Reshape, Severity: Fault, Doc: "A reshape changes the number of elements.", Fix: "make both shapes hold the same number of elements, with equally many -1"},
	{Code: BatchTensor, Severity: Fault, Doc: "A batch input or output is incomplete.", Fix: "set target_name, data_type and one source_input of the model"},
	{Code: Versions, Severity: Fault, Doc: "The version policy picks no version.", Fix: "ask for at least one version"},
	{Code: MixedNaming, Severity: Notice, Doc: "Names follow more than one convention, so that inputs are passed in the order of their declaration."},
	{Code: QueuePolicy, Severity: Fault, Doc: "A queue policy has an unknown action.", Fix: "write timeout_action: REJECT or timeout_action: DELAY"},
	{Code: Metrics, Severity: Fault, Doc: "The metrics settings are not valid.", Fix: "correct metric_tags or model_metrics"},
	{Code: UnknownParam, Severity: Warning, Doc: "A parameter is unknown. With --strict-parameters this is an error.", Fix: "remove it"},
	{Code: StepParam, Severity: Fault, Doc: "The parameters of a native step are not valid.", Fix: "correct the parameter: docs/steps.md lists those of every step"},
	{Code: BadParam, Severity: Fault, Doc: "A parameter has a value that it cannot have.", Fix: "write one of the values that the text lists"},
	{Code: EnsembleFlow, Severity: Fault, Doc: "Platform, backend and ensemble_scheduling contradict each other.", Fix: `use platform: "ensemble", ensemble_scheduling and no backend together`},
	{Code: EnsembleField, Severity: Fault, Doc: "A field is set that an ensemble cannot have.", Fix: "move the field to the models of the steps"},
	{Code: EnsembleStep, Severity: Fault, Doc: "There is no step, or a step is incomplete.", Fix: "give every step model_name, input_map and output_map"},
	{Code: TensorTwice, Severity: Fault, Doc: "A tensor is written twice.", Fix: "give each output a tensor of its own"},
	{Code: InputUnused, Severity: Fault, Doc: "An input of the ensemble feeds no step.", Fix: "map it to a step's input, or remove it"},
	{Code: OutputUnused, Severity: Fault, Doc: "An output of the ensemble appears in no step.", Fix: "map a step's output to it, or remove it"},
	{Code: NotWritten, Severity: Fault, Doc: "An output depends on a tensor that no step writes.", Fix: "connect every tensor it depends on"},
	{Code: TensorUnused, Severity: Fault, Doc: "A tensor has no reader, or no writer.", Fix: "remove it from the step's map, or connect it"},
	{Code: InputWritten, Severity: Fault, Doc: "A step writes an input of the ensemble.", Fix: "give the step's output another tensor name"},
	{Code: TypesDiffer, Severity: Fault, Doc: "The ports of one tensor have different data types.", Fix: "connect ports of one type"},
	{Code: ShapesDiffer, Severity: Fault, Doc: "The ports of one tensor have different shapes.", Fix: "connect ports of one shape, -1 fits any extent"},
	{Code: NoSuchPort, Severity: Fault, Doc: "A step maps an input or output that its model does not have.", Fix: "use a name from the model's own configuration"},
	{Code: InputUnmapped, Severity: Fault, Doc: "A required input of a step's model gets no tensor.", Fix: "add it to the step's input_map"},
	{Code: BatchTooSmall, Severity: Fault, Doc: "A step's model takes smaller batches than the ensemble.", Fix: "lower the ensemble's max_batch_size, or raise the model's"},
	{Code: BadDependency, Severity: Fault, Doc: "A step's model cannot be used.", Fix: "correct that model first"},
	{Code: NoSuchModel, Severity: Fault, Doc: "A step names a model that does not exist.", Fix: "correct model_name, or add the model to the repository"},
	{Code: Circle, Severity: Fault, Doc: "Ensembles or tensors depend on each other in a cycle.", Fix: "remove one connection of the circle"},
	{Code: NotCompiled, Severity: Fault, Doc: "An ensemble cannot be compiled for a reason that has no code of its own."},
	{Code: MixedStreams, Severity: Fault, Doc: "A step would need to pair responses of independent decoupled steps.", Fix: "give each decoupled step an ensemble of its own"},
	{Code: NotResident, Severity: Fault, Doc: "A tensor would be copied between two steps of an ensemble with require_resident.", Fix: "run both steps on one device by their instance_group, or remove require_resident"},
	{Code: FlowParam, Severity: Fault, Doc: "A parameter of an ensemble that changes its data flow is not valid.", Fix: "correct the parameter as docs/ensembles.md describes it"},
	{Code: MixedRows, Severity: Fault, Doc: "A tensor is needed for rows that do not have it, because of the condition of a step.", Fix: "give the rows without it a value by step.MODEL.otherwise, or join it with others by ensemble.first_of"},
	{Code: NotHonoured, Severity: Fault, Unsupported: true, Doc: "A field would change results and is not supported.", Fix: "remove the field"},
	{Code: Hint, Severity: Notice, Doc: "A field only hints at speed, or depends on one that is not set, and has no effect here."},
	{Code: SharedLibrary, Severity: Fault, Unsupported: true, Doc: "The field names a shared library that was built for Triton.", Fix: "use what is built in; of libraries built for Triton only that of the model's backend is loaded, libtriton_BACKEND.so, where BACKEND is the field 'backend'"},
	{Code: NotBuiltIn, Severity: Fault, Doc: "The backend is not built in.", Fix: "use one of the backends that are built in"},
	{Code: NoGPU, Severity: Fault, Unsupported: true, Doc: "The configuration requires a GPU, and there is none.", Fix: "remove the accelerator, or " + runOnCPU},
	{Code: OnCPU, Severity: Warning, Doc: "The configuration requires a GPU, and there is none: the model runs on the CPU because of --gpu-fallback=cpu.", Fix: "set kind: KIND_CPU to have the same everywhere"},
	{Code: NotLoaded, Severity: Fault, Doc: "The model cannot be loaded, for a reason that has no code of its own."},
	{Code: NoRuntime, Severity: Warning, Doc: "The runtime of the backend is not installed, so the model's file was not checked.", Fix: "run 'tutti runtime fetch' with its name to have the model's file checked too"},
	{Code: NoVersion, Severity: Fault, Doc: "The model has no version folder.", Fix: "put the model's files into a folder named 1"},
	{Code: FolderName, Severity: Notice, Doc: "A folder's name is not a version. The folder is ignored.", Fix: "name version folders by a positive number without leading zeros"},
	{Code: LabelFile, Severity: Fault, Doc: "A label file cannot be read.", Fix: "put the file into the model's folder, one label a line"},
	{Code: NoModels, Severity: Fault, Doc: "A repository holds no model.", Fix: "give the folder that holds the models' folders"},
	{Code: Duplicate, Severity: Fault, Doc: "Two repositories hold a model of the same name.", Fix: "rename one of the two"},
	{Code: ModelFile, Severity: Fault, Doc: "The model's file is missing, or cannot be read.", Fix: "put the model's file into the version folder"},
	{Code: Mismatch, Severity: Fault, Doc: "The configuration and the model's file contradict each other.", Fix: "declare what the file has, or nothing"},
	{Code: PythonModel, Severity: Fault, Doc: "model.py cannot be imported, or TritonPythonModel cannot be created."},
	{Code: PythonPlatform, Severity: Notice, Extension: true, Doc: `platform: "python" is read as backend: "python".`, Fix: `write backend: "python"`},
	{Code: NoModelVersion, Severity: Notice, Extension: true, Doc: "A step without model_version takes the latest version.", Fix: "write model_version: -1"},
	{Code: InferredPort, Severity: Notice, Extension: true, Doc: "An ensemble's input or output is inferred from its steps.", Fix: "declare it"},
	{Code: VersionlessEnsemble, Severity: Notice, Extension: true, Doc: "An ensemble has no version folder and is version 1.", Fix: "make an empty folder named 1"},
	{Code: OwnBackend, Severity: Notice, Extension: true, Doc: "The backend exists in this server only."},
	{Code: PaddingParam, Severity: Notice, Extension: true, Doc: "A parameter pads inputs, which Triton ignores."},
	{Code: InferredTensor, Severity: Notice, Extension: true, Doc: "A declared tensor's type or dims are inferred from the model.", Fix: "declare data_type and dims"},
	{Code: FlowExtension, Severity: Notice, Extension: true, Doc: "A parameter changes the data flow of an ensemble, which Triton ignores."},
}
