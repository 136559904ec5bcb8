package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// CheckStartCommand is the subcommand of an agent's program that [CheckStart] runs. A program that
// would not start under --top, or not with the configuration there, prints why and exits with
// ExitSettings.
const CheckStartCommand = "check-start"

// ExitSettings is EX_CONFIG of sysexits.h. A program that does not start for another reason
// exits with another status.
const ExitSettings = 78

// maxStartError bounds what CheckStart quotes, in bytes: a file may have many errors.
const maxStartError = 500

// CheckStart returns why an agent's program would not start under top, or nil. A program that does
// not answer the question returns nil too: whether it runs at all is another check.
func CheckStart(ctx context.Context, program, top string) error {
	cmd := exec.CommandContext(ctx, program, CheckStartCommand, "--top", top)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != ExitSettings {
		return nil //nolint:nilerror // see above
	}
	text := strings.TrimSpace(out.String())
	if len(text) > maxStartError {
		text = strings.ToValidUTF8(text[:maxStartError], "") + "…"
	}
	if text == "" {
		return fmt.Errorf("%s %s: it exits with status %d and says nothing", program, CheckStartCommand, ExitSettings)
	}
	return errors.New(text)
}
