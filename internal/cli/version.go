package cli

import (
	"context"
	"fmt"

	"github.com/tutti-server/tutti"
)

func (p *program) version(_ context.Context, _ []string) error {
	_, err := fmt.Fprintf(p.stdout, "tutti %s\n", tutti.Version)
	return err
}
