//go:build !linux

package systemd

import (
	"context"
	"fmt"

	"github.com/muster-fleet/muster/agent/runtime"
)

func connect(context.Context) (manager, error) {
	return nil, fmt.Errorf("%w: only Linux has systemd", runtime.ErrUnavailable)
}
