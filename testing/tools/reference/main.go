// Command reference writes the generated pages of the documentation: the commands of the three
// programs, the admin API, configuration files and metrics. `go tool mage fmt` runs it with the
// folder of the pages, and its test compares them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: reference FOLDER")
	}
	root, err := toolchain.Root()
	if err != nil {
		return err
	}
	agent, err := agentSubcommands(ctx, root)
	if err != nil {
		return err
	}
	metrics, err := metricsPage(root)
	if err != nil {
		return err
	}
	api := apiPage()
	settings, err := configurationPage(root)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"muster.md": serverSubcommands(), "muster-agent.md": agent, "api.md": api, "configuration.md": settings, "metrics.md": metrics,
	} {
		if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
