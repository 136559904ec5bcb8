package launch

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/windows/svc"
)

// stopTimeout is how long a program may take to stop: the agent takes 5 s each for its parts and
// its components. The control manager waits for 20 s at a shutdown.
const stopTimeout = 15 * time.Second

// IsService reports whether the service control manager has started this process.
func IsService() bool {
	is, err := svc.IsWindowsService()
	return err == nil && is
}

// AsService calls do. If the service control manager has started this process AsService answers it, and ends
// the context of do when the service is to stop.
func AsService(ctx context.Context, do func(context.Context) error) error {
	if !IsService() {
		return do(ctx)
	}
	// The control manager ignores the name, since the process has only one service.
	return svc.Run("", handler{ctx, do})
}

type handler struct {
	ctx context.Context //nolint:containedctx // Execute has no other way to get it
	do  func(context.Context) error
}

// Execute returns when do has returned. If do fails without having been asked to stop, the process
// exits without a word to the control manager, which then does what is set for a failure.
func (h handler) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (specific bool, code uint32) {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- h.do(ctx) }()
	status <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	var late <-chan time.Time
	for {
		select {
		case err := <-done:
			if err != nil && late == nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return true, failed(err)
		case <-late:
			return true, failed(context.DeadlineExceeded)
		case r := <-requests:
			switch r.Cmd {
			case svc.Interrogate:
				status <- r.CurrentStatus
			case svc.Stop, svc.Shutdown:
				status <- svc.Status{State: svc.StopPending, WaitHint: uint32(stopTimeout.Milliseconds())}
				cancel()
				late = time.After(stopTimeout)
			}
		}
	}
}

// failed returns the exit code of a service.
func failed(err error) uint32 {
	if err != nil {
		return 1
	}
	return 0
}
