//go:build !linux

package container

import (
	"context"
	"errors"
	"fmt"
)

// Run is for Linux, whose containers these are.
func (Container) Run(context.Context) error {
	return fmt.Errorf("the agent as process 1 of a container: %w: install it with muster-agent install", errors.ErrUnsupported)
}
