package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/importer"
	"github.com/tutti-server/tutti/internal/table"
)

func importCommand() command {
	return command{
		name: "import", usage: "FILE DIR [--metadata DIR|URL] [--remote HOST:PORT] [-o text|json|yaml]",
		summary: "Write a repository from the pipelines of another server",
		notes: `FILE is the configuration of an OpenVINO Model Server (JSON), an InferenceGraph of KServe or a Pipeline of Seldon Core 2 (YAML).
Each pipeline becomes an ensemble. Models of OpenVINO are copied from the folders that FILE names, or from those of the same name
beside it. Services of KServe and models of Seldon become remote models. Nothing is overwritten: DIR must be new or empty.
InferenceGraph and Pipeline do not name the tensors of models, so --metadata says where to read them: from a server of KServe v2, or
from files MODEL.json in a folder, each the response of /v2/models/MODEL.
The report lists what did not carry over as it was, with its place and the reason.`,
		examples: []string{
			"tutti import config.json models",
			"tutti import config.json models --remote ovms.example:9000",
			"tutti import graph.yaml models --metadata metadata",
			"tutti import pipeline.yaml models --metadata http://seldon.example:9000 --remote seldon.example:9000 -o json",
		},
		run: (*program).importPipelines,
	}
}

// importPipelines writes a repository from the pipelines of another server.
func (p *program) importPipelines(ctx context.Context, args []string) error {
	fs, c := p.flags("import"), &connection{}
	c.serverFlags(fs)
	metadata := fs.String("metadata", "", "`DIR|URL` with the metadata of the models: files MODEL.json, or a server that has the models")
	remote := fs.String("remote", "", "`HOST:PORT` of a server of KServe v2 over gRPC that keeps the models: they become remote models")
	out := outputFlag(fs, formatText, formatJSON, formatYAML)
	rest, err := arguments(fs, args, 2, 2, "the file and the folder of the new repository")
	if err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(*remote); *remote != "" && err != nil {
		return usagef("--remote is '%s', expected HOST:PORT of a server's gRPC port", *remote)
	}
	if err := isVacant(rest[1]); err != nil {
		return err
	}
	s := importer.Settings{File: rest[0], Endpoint: *remote}
	closed := func() error { return nil }
	if *metadata != "" {
		if s.Metadata, closed, err = c.metadata(*metadata); err != nil {
			return err
		}
	}
	r, err := importer.Import(ctx, s)
	if err = errors.Join(err, closed()); err != nil {
		return err
	}
	if err := fill(rest[1], r.Write); err != nil {
		return err
	}
	return out.print(p.stdout, struct {
		Folder string `json:"folder"`
		*importer.Result
	}{rest[1], r}, func() error { return p.describeImport(rest[0], rest[1], r) })
}

// metadata returns a source of metadata: files of a folder, or a server.
func (c *connection) metadata(from string) (source func(context.Context, string) (*infer.Metadata, error), closed func() error, err error) {
	if info, err := os.Stat(from); err == nil && info.IsDir() {
		return importer.Folder(from), func() error { return nil }, nil
	}
	if !strings.Contains(from, ":") {
		return nil, nil, &failure{exitNotFound, fmt.Errorf("--metadata is '%s', expected a folder or the URL of a server", from)}
	}
	m, err := c.dial(from)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, model string) (*infer.Metadata, error) {
		found, err := m.Metadata(ctx, model)
		if e, refused := errors.AsType[*client.Error](err); refused && refusalStatus(e.Status) == exitNotFound {
			return nil, nil
		}
		return found, err
	}, m.Close, nil
}

// describeImport prints what was written and what did not carry over.
func (p *program) describeImport(file, dir string, r *importer.Result) error {
	var t strings.Builder
	fmt.Fprintf(&t, "Wrote %s from %s (%s): %s, %s.\n", dir, file, r.Format, table.Count(len(r.Ensembles), "ensemble"), table.Count(len(r.Models), "model"))
	if len(r.Notes) > 0 {
		t.WriteString("\nWhat did not carry over as it was:\n")
	}
	for _, n := range r.Notes {
		at := file
		if n.Line > 0 {
			at = fmt.Sprintf("%s:%d", file, n.Line)
		}
		fmt.Fprintf(&t, "  %s: %s: %s\n", at, n.What, n.Reason)
	}
	fmt.Fprintf(&t, "\nCheck it and serve it:\n  tutti validate %[1]s\n  tutti serve --model-repository %[1]s\n", dir)
	_, err := p.stdout.Write([]byte(t.String()))
	return err
}
