package tools

import (
	"encoding/base64"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/identity"
)

// pageSize is the number of tools in a page of the list.
const pageSize = 100

// list returns a page of the tools that are ready and that the client may call, in the order of their names. The cursor has the name of
// the last tool of the page before.
func (m *message) list(p *mcp.ListToolsParams) (*mcp.ListToolsResult, error) {
	// What may be called depends on the client, and on what is loaded.
	res := &mcp.ListToolsResult{Tools: []*mcp.Tool{}, Cacheable: mcp.Cacheable{CacheScope: "private"}}
	after := ""
	if p != nil && p.Cursor != "" {
		b, err := base64.RawURLEncoding.DecodeString(p.Cursor)
		if err != nil {
			return nil, invalid("the cursor '%.40s' is not one of this server, expected the nextCursor of a list, or none for the first page", p.Cursor)
		}
		after = string(b)
	}
	if !m.Admits(infer.APIMetadata, m.header) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("the list is restricted, expecting header '%s'", m.Restrictions.Of(infer.APIMetadata).Key)}
	}
	if m.Lifecycle == nil {
		return res, nil
	}
	last := after
	for _, e := range m.Lifecycle.Index(true) { // versions of a model follow each other
		if e.Name <= last {
			continue
		}
		t, err := m.find(e.Name)
		if err != nil {
			continue
		}
		if len(res.Tools) == pageSize {
			res.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(last))
			break
		}
		last = e.Name
		res.Tools = append(res.Tools, t.describe())
	}
	return res, nil
}

// tool is a model that clients can call.
type tool struct {
	config.Tool

	desc *infer.Description
}

// find returns the tool of a name. The error is that of a model that is not there, not ready, no tool, or not for the client.
func (m *message) find(name string) (tool, error) {
	if !identity.From(m.ctx).Sees(identity.GroupOf(infer.APIInference), name) {
		return tool{}, errNoTool
	}
	cfg, err := m.Catalog.Config(name, 0)
	if err != nil {
		return tool{}, err
	}
	about, ok := config.ToolOf(cfg)
	if !ok {
		return tool{}, errNoTool
	}
	desc, err := m.Catalog.Describe(name, 0)
	return tool{about, desc}, err
}

// invalid returns the protocol's error for parameters that are wrong.
func invalid(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}
