package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tutti-server/tutti/bench/proc"
)

// identityConfig is the configuration of an identity model.
const identityConfig = `backend: "identity"
max_batch_size: 32
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
`

// startup measures the time until our server is ready with many models, and its memory then.
func (m *matrix) startup(ctx context.Context) error {
	dir := m.path("many")
	for i := range m.models {
		model := filepath.Join(dir, "identity_"+strconv.Itoa(i))
		if err := os.MkdirAll(filepath.Join(model, "1"), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(model, "config.pbtxt"), []byte(identityConfig), 0o600); err != nil {
			return err
		}
	}
	var seconds, resident []float64
	for range m.rounds {
		ports, err := freePorts()
		if err != nil {
			return err
		}
		p, err := m.launch(ctx, "tutti", &proc.Settings{
			Command: append([]string{m.tutti}, tuttiArgs(ports, dir)...), HTTP: "127.0.0.1:" + ports[0], GRPC: "127.0.0.1:" + ports[1],
		})
		if err != nil {
			return err
		}
		mem, err := p.Memory()
		if err != nil {
			return err
		}
		seconds, resident = append(seconds, p.Ready.Seconds()), append(resident, mib(mem.Resident))
		if err := p.Stop(); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stdout, "%d identity models: ready after %.3f s, resident %.0f MiB (medians of %d starts)\n",
		m.models, median(seconds), median(resident), m.rounds)
	return nil
}
