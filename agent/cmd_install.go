package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/agent/component"
	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/setup"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/probe"
)

// tokenVariable keeps the enrollment token out of the process list.
const tokenVariable = "MUSTER_ENROLLMENT_TOKEN" //nolint:gosec // a name, not a token

func enrollmentFlags(c *cobra.Command, e *setup.Enrollment) {
	f := c.Flags()
	f.StringVar(&e.URL, "url", "", "URL of the server's agent port, such as https://fleet.example.com:8220")
	f.StringVar(&e.Token, "token", "", "enrollment token, which every user of the host sees in the list of processes; better use --token-file, or set $"+tokenVariable)
	f.StringVar(&e.TokenFile, "token-file", "", "file with the enrollment token; - is standard input")
	c.MarkFlagsMutuallyExclusive("token", "token-file")
	f.StringVar(&e.CAPin, "ca-pin", "", "sha256:<hex> of the server's CA, as the server prints it (default: the host's own CAs)")
	f.StringVar(&e.TrustRoot, "trust-root", "", "sha256:<hex> of the publishers' root file, as muster keys create prints it, or such a file")
	f.StringSliceVar(&e.Tags, "tag", nil, "tag of this agent; may be repeated")
}

// readToken reads the token, if it is no flag: from a file, or else from the environment.
func readToken(c *cobra.Command, e *setup.Enrollment) error {
	var err error
	switch {
	case e.TokenFile != "":
		e.Token, err = setup.ReadToken(c.InOrStdin(), e.TokenFile)
	case e.Token == "":
		e.Token = os.Getenv(tokenVariable)
	}
	return err
}

func installSubcommand() *cobra.Command {
	var (
		archive              string
		place                placeFlags
		noService, unsafeTop bool
		declared             string
		e                    setup.Enrollment
	)
	c := &cobra.Command{
		Use:   "install",
		Short: "Install the agent on this host, and enrol it",
		Long: `Install the agent on this host, from --package or from the unpacked package that
this program is in. With --url and a token it is enrolled as well. It is installed
as a service unless --no-service is given. If anything fails, the host is left as
it was. For root, the folder and all folders above it must belong to root, and no
other user may write to them; for an administrator of Windows, it must be below the
folder of programs.

With --prefix the agent uses the folders of the system. Its first version is run from
PREFIX/lib/muster-agent/VERSION, where the system's package has put it, and the prefix may be
read-only. SYSCONFDIR/muster-agent has agent.yml and the link to the version that runs;
LOCALSTATEDIR/lib/muster-agent is the top folder, with all that the agent writes, also the
versions that it upgrades itself to. Run the program of that version to install it.

Without a network, copy the package and the publishers' signed metadata into one folder: muster
package keys mirror --out FOLDER writes the latter. A copy is good for a day.`,
		Example: `  muster-agent install --url https://fleet.example.com:8220 --token-file FILE \
      --ca-pin sha256:… --trust-root sha256:…
  muster-agent install --top ./agent1 --no-service --package copy/muster-agent-1.0.0-linux-amd64.tar.gz --trust-root sha256:…
  /usr/lib/muster-agent/1.0.0/muster-agent install --prefix /usr --sysconfdir /etc --url https://fleet.example.com:8220 …`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := readToken(c, &e); err != nil {
				return err
			}
			top, system, err := place.resolve(c, archive)
			if err != nil {
				return err
			}
			exe, err := daemon.Executable()
			if err != nil {
				return err
			}
			i := setup.Installation{Disk: disk.OS{}, Top: top, System: system, UnsafeTop: unsafeTop, Package: archive, Executable: exe, TrustRoot: e.TrustRoot}
			if e.URL != "" || c.Flags().Changed("token") || e.TokenFile != "" {
				i.Enrollment = &e
			}
			switch {
			case c.Flags().Changed("service"):
				i.Services = setup.Declared{Name: declared}
			case !noService:
				i.Services = setup.Manager{}
			}
			done, err := i.Run(c.Context())
			if err != nil {
				return err
			}
			return printInstalled(c, top, system, done, c.Flags().Changed("service"))
		},
	}
	place.flags(c)
	enrollmentFlags(c, &e)
	c.Flags().StringVar(&archive, "package", "", "package to install, with the signed metadata beside it if no server has them")
	c.Flags().BoolVar(&unsafeTop, "unsafe-top", false, "let root install below a folder that other users can change, such as /tmp; for trials only")
	c.Flags().BoolVar(&noService, "no-service", false, "do not register a service; something else runs muster-agent run")
	c.Flags().StringVar(&declared, "service", "", "name of the service that the system's configuration has for the agent; do not register one, see muster-agent units")
	c.MarkFlagsMutuallyExclusive("no-service", "service")
	return c
}

// placeFlags say where the agent is installed.
type placeFlags struct{ top, prefix, sysconfdir, localstatedir string }

func (p *placeFlags) flags(c *cobra.Command) {
	folderFlag(c, &p.top, "top", "", "folder to install the agent in (default "+daemon.DefaultTop+")")
	folderFlag(c, &p.prefix, "prefix", "", "folder of the system's programs, such as /usr, from which the version is run; instead of --top")
	folderFlag(c, &p.sysconfdir, "sysconfdir", "/etc", "folder of the system's configuration, for the settings and the link to the version that runs; with --prefix")
	folderFlag(c, &p.localstatedir, "localstatedir", setup.DefaultLocalStateDir, "folder of what programs write, for all else; with --prefix")
}

// resolve returns the top folder, and the system if there is a prefix.
func (p *placeFlags) resolve(c *cobra.Command, archive string) (top string, system *layout.System, err error) {
	if !c.Flags().Changed("prefix") {
		for _, flag := range []string{"sysconfdir", "localstatedir"} {
			if c.Flags().Changed(flag) {
				return "", nil, fmt.Errorf("--%s needs --prefix PREFIX, whose PREFIX/lib/muster-agent has the version", flag)
			}
		}
		if p.top == "" {
			p.top = daemon.DefaultTop // never the folder the program was unpacked in
		}
		top, err = resolveTop(p.top)
		return top, nil, err
	}
	switch {
	case c.Flags().Changed("top"):
		return "", nil, errors.New("--top and --prefix exclude each other: with --prefix the top folder is LOCALSTATEDIR/lib/muster-agent")
	case archive != "":
		return "", nil, errors.New("--package and --prefix exclude each other: the system's package has put the version below the prefix")
	case runtime.GOOS == "windows":
		return "", nil, errors.New("--prefix is not for Windows: choose a folder with --top")
	}
	system = &layout.System{Prefix: p.prefix, SysConfDir: p.sysconfdir, LocalStateDir: p.localstatedir}
	if err := setup.CheckSystem(*system); err != nil {
		return "", nil, err
	}
	// Without links, so that all programs name the folders alike.
	for _, folder := range []*string{&system.Prefix, &system.SysConfDir, &system.LocalStateDir} {
		*folder = resolved(*folder)
	}
	return system.Roots().Top, system, nil
}

func printInstalled(c *cobra.Command, top string, system *layout.System, done setup.Installed, declared bool) error {
	w := c.OutOrStdout()
	fmt.Fprintf(w, "Installed muster-agent %s in %s.\n", done.Version, top)
	program := filepath.Join(top, layout.AgentLink)
	if system != nil {
		fmt.Fprintf(w, "Its programs are in %s, its settings in %s.\n", system.Version(done.Version.FullVersion()), system.Roots().Link(layout.ConfigFile))
		program, _ = system.Command()
	}
	if done.Identity != nil {
		fmt.Fprintf(w, "Enrolled with %s as %s.\n", done.Identity.ServerURL, done.Identity.AgentID)
	} else {
		fmt.Fprintf(w, "Not enrolled yet: %s enroll --url … --token-file … --trust-root …\n", program)
	}
	if declared {
		_, err := fmt.Fprintf(w, "Start the service %s when the system has its units.\n", done.Service)
		return err
	}
	if done.Service != "" {
		_, err := fmt.Fprintf(w, "Runs as service %s.\n", done.Service)
		return err
	}
	_, err := fmt.Fprintf(w, "Start it with: %s run --top %s\n", program, top)
	return err
}

func enrollSubcommand() *cobra.Command {
	var (
		top string
		e   setup.Enrollment
	)
	c := &cobra.Command{
		Use:     "enroll",
		Short:   "Enrol the installed agent with a server",
		Example: `  muster-agent enroll --url https://fleet.example.com:8220 --token-file FILE --ca-pin sha256:… --trust-root sha256:…`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := readToken(c, &e); err != nil {
				return err
			}
			top, err := resolveTop(top)
			if err != nil {
				return err
			}
			running, err := ownVersion(top)
			if err != nil {
				return err
			}
			id, err := setup.Enroll(c.Context(), disk.OS{}, top, e, running.Identity, host.Read())
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "Enrolled with %s as %s.\n", id.ServerURL, id.AgentID)
			if _, err := (probe.Client{Dial: probe.DialSocket(top)}).Health(c.Context()); err == nil {
				fmt.Fprintln(c.OutOrStdout(), "The running agent still uses its old identity: restart it.")
			}
			return nil
		},
	}
	topFlag(c, &top)
	enrollmentFlags(c, &e)
	return c
}

func uninstallSubcommand() *cobra.Command {
	var (
		top string
		yes bool
	)
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the agent from this host",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			top, err := resolveTop(top)
			if err != nil {
				return err
			}
			if !yes {
				fmt.Fprintf(c.OutOrStdout(), "Remove the agent in %s, with its identity and state? [y/N] ", top)
				var answer string
				_, _ = fmt.Fscanln(c.InOrStdin(), &answer) // no answer is no
				if !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
					return fmt.Errorf("nothing was removed: answer y, or pass --yes")
				}
			}
			running, err := ownVersion(top)
			if err != nil {
				return err
			}
			return uninstall(c, top, running.Identity)
		},
	}
	topFlag(c, &top)
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func uninstall(c *cobra.Command, top string, running manifest.Identity) error {
	runtimes, err := daemon.HostRuntimes(disk.OS{}, "", slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	r := setup.Removal{
		Disk: disk.OS{}, Top: top, Services: setup.Manager{}, Lock: daemon.FileLock, Running: running,
		Components: func(ctx context.Context) ([]string, error) {
			return component.Uninstall(ctx, disk.OS{}, top, runtimes)
		},
	}
	out, err := r.Run(c.Context())
	if err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "Removed the agent from %s.\n", top)
	if len(out.Components) > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "These components go on without the agent, and need the folder %s: %s\n", filepath.Join(top, component.FolderName), strings.Join(out.Components, ", "))
	}
	if out.ReportErr != nil {
		fmt.Fprintf(c.ErrOrStderr(), "The removal could not be reported to the server (%v): remove the agent there too.\n", out.ReportErr)
	}
	if len(out.Settings) > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "Not removed, since the settings were changed or the installation did not create it: %s\n", strings.Join(out.Settings, ", "))
	}
	if len(out.Left) > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "Not removed from %s, since the installation did not create it: %s\n", top, strings.Join(out.Left, ", "))
	}
	return nil
}
