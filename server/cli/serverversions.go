package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/serverlayout"
)

// versionTimeout bounds a program that prints its version.
const versionTimeout = 10 * time.Second

// programVersion runs a program and returns its version.
func programVersion(ctx context.Context, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(bytes.TrimSpace(out)))
	if len(fields) != 3 || fields[0] != "muster" {
		return "", fmt.Errorf("it prints %q, and is no muster", out)
	}
	return fields[2], nil
}

// layoutFlags are those of subcommands that install versions of the server on this machine.
type layoutFlags struct{ prefix, sysconfdir string }

func (l *layoutFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&l.prefix, "prefix", "", "folder of the programs (default: that of this program if it is installed, else /usr)")
	f.StringVar(&l.sysconfdir, "sysconfdir", "", "folder of configuration, which has the pointer to the current version (default: that of the installation in the prefix, else /etc)")
}

// layout returns the layout and the path of this program.
func (l *layoutFlags) layout() (*serverlayout.Layout, string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return nil, "", err
	}
	prefix, _ := serverlayout.Locate(self)
	prefix, err = filepath.Abs(cmp.Or(l.prefix, prefix, "/usr"))
	if err != nil {
		return nil, "", err
	}
	sysconfdir, err := l.pointerFolder(prefix)
	return &serverlayout.Layout{Disk: disk.OS{}, Prefix: prefix, SysConfDir: sysconfdir, Version: programVersion}, self, err
}

// pointerFolder returns the folder of configuration of the installation in a prefix. Its links say which
// one it is: a pointer elsewhere would be read by nobody, and without the true one no step is checked.
func (l *layoutFlags) pointerFolder(prefix string) (string, error) {
	given := ""
	if l.sysconfdir != "" {
		var err error
		if given, err = filepath.Abs(l.sysconfdir); err != nil {
			return "", err
		}
	}
	switch is, err := serverlayout.SysConfDirOf(disk.OS{}, prefix); {
	case errors.Is(err, fs.ErrNotExist):
		return cmp.Or(given, "/etc"), nil
	case err != nil:
		return "", err
	case given != "" && given != is:
		return "", &usageError{fmt.Errorf("--sysconfdir is %s, and the installation in %s has its pointer in %s: leave it out, or name another --prefix", given, prefix, is)}
	default:
		return is, nil
	}
}

func (a *client) newServerInstall() *cobra.Command {
	var (
		l      layoutFlags
		layout *serverlayout.Layout
		fresh  bool
	)
	cmd := onLayout(a, &l, &cobra.Command{
		Use:   "install",
		Short: "Install this version of the server beside the others on this machine",
		Long: `Install this version of the server beside the others on this machine, as
PREFIX/lib/muster/VERSION. The first version becomes the current one, which PREFIX/bin/muster
runs; ` + "`muster server versions switch`" + ` changes that without another installation, and
writes only to SYSCONFDIR/muster, so that the prefix can be read-only.

What PREFIX/bin/muster is, everybody on this machine runs, root among them. So only the owner
of SYSCONFDIR/muster may write there. The server asks root's unit for another version
(` + "`muster server unit --help`" + `).`,
		Example: `  ./muster server install
  ./muster server install --prefix /opt/muster --sysconfdir /opt/muster/etc`,
	}, func(cmd *cobra.Command, _ []string, here *serverlayout.Layout, self string) (list []serverlayout.Installed, err error) {
		layout = here
		if fresh, err = here.Install(cmd.Context(), a.version, self); err != nil {
			return nil, err
		}
		return here.List(cmd.Context())
	}, func(w io.Writer, list []serverlayout.Installed) {
		if fresh {
			fmt.Fprintf(w, "Installed %s in %s.\n", a.version, layout.Home(a.version))
		} else {
			fmt.Fprintf(w, "Version %s is installed already.\n", a.version)
		}
		for _, i := range list {
			if i.Current && i.Version != a.version {
				fmt.Fprintf(w, "%s runs %s: `muster server versions switch %s` changes that.\n", layout.Link(), i.Version, a.version)
			}
		}
	})
	l.flags(cmd.Flags())
	return cmd
}

// onLayout is running for a subcommand that gets the layout of versions on this machine, and the path of this
// program.
func onLayout[Out any](a *client, l *layoutFlags, cmd *cobra.Command, run func(cmd *cobra.Command, args []string, layout *serverlayout.Layout, self string) (Out, error), human func(io.Writer, Out)) *cobra.Command {
	return running(a, cmd, func(cmd *cobra.Command, args []string) (out Out, err error) {
		layout, self, err := l.layout()
		if err != nil {
			return out, err
		}
		return run(cmd, args, layout, self)
	}, human)
}

func (a *client) newServerVersions() *cobra.Command {
	use := &cobra.Command{
		Use:   "switch VERSION",
		Short: "Have the next start of the server run another version that is installed",
		Long: `Have the next start of the server run another version that is installed: one of the same
major version, and of the same, a higher or the previous minor version.`,
		Args: oneArg("one version: `muster server versions list` shows them"),
	}
	force := use.Flags().Bool("force", false, "also to a version that cannot follow the current one, such as that of another major version")
	link := ""
	var l layoutFlags
	cmd := noun(&cobra.Command{
		Use:   "versions",
		Short: "Show the versions of the server on this machine, and switch among them",
		Long: `Show the versions of the server on this machine, and switch among them. Versions are
installed beside each other by ` + "`muster server install`" + `.`,
	},
		onLayout(a, &l, &cobra.Command{
			Use:   "list",
			Short: "List the versions of the server on this machine, the newest first",
		}, func(cmd *cobra.Command, _ []string, layout *serverlayout.Layout, _ string) ([]serverlayout.Installed, error) {
			return layout.List(cmd.Context())
		}, func(w io.Writer, list []serverlayout.Installed) {
			tableOf(w, "VERSION\tSTATE\tPROGRAM\tPROBLEM", list, func(i serverlayout.Installed) []any {
				state := ""
				set(i.Current, &state, "current")
				return []any{i.Version, state, i.Program, i.Problem}
			})
		}),
		onLayout(a, &l, use, func(cmd *cobra.Command, args []string, layout *serverlayout.Layout, _ string) (map[string]string, error) {
			link = layout.Link()
			err := layout.Switch(cmd.Context(), args[0], *force)
			if errors.Is(err, fs.ErrPermission) {
				err = fmt.Errorf("%w: only the owner of the installation moves the pointer, so run this with sudo", err)
			}
			return map[string]string{"version": args[0]}, err
		}, func(w io.Writer, out map[string]string) {
			fmt.Fprintf(w, "%s runs %s now. A server that runs must be restarted.\n", link, out["version"])
		}),
		onLayout(a, &l, &cobra.Command{
			Use:   "remove VERSION",
			Short: "Remove a version of the server that is not the current one",
			Args:  oneArg("one version: `muster server versions list` shows them"),
		}, func(_ *cobra.Command, args []string, layout *serverlayout.Layout, _ string) (map[string]string, error) {
			return map[string]string{"version": args[0]}, layout.Remove(args[0])
		}, func(w io.Writer, out map[string]string) { fmt.Fprintf(w, "Removed version %s.\n", out["version"]) }),
		&cobra.Command{
			Use:    "answer",
			Short:  "Answer one request of the server for another version (run by muster-switch@.service)",
			Hidden: true,
			Args:   noArgs,
			RunE:   func(cmd *cobra.Command, _ []string) error { return answerSwitch(cmd.Context()) },
		})
	l.flags(cmd.PersistentFlags())
	return cmd
}

// answerSwitch answers the request for another version on standard input.
func answerSwitch(ctx context.Context) error {
	layout, err := ownLayout()
	if err == nil && layout == nil {
		err = errors.New("this program does not run from an installation")
	}
	if err != nil {
		return err
	}
	conn, err := net.FileConn(os.Stdin)
	if err != nil {
		return fmt.Errorf("standard input is no socket, as the unit %s makes it one: %w", serverlayout.SwitchUnit, err)
	}
	defer conn.Close()
	r, refusal, err := layout.Answer(ctx, conn, os.Geteuid())
	switch {
	case refusal != nil:
		slog.Warn("the server's request for a version is refused", "error", refusal)
	case err == nil && r.Move:
		slog.Info("the current version is another one", "version", r.Version)
	}
	return err
}

func (a *client) newServerUnit() *cobra.Command {
	var l layoutFlags
	var user, config, dir string
	cmd := &cobra.Command{
		Use:   "unit",
		Short: "Print or write the units of systemd that run the server of this installation",
		Long: `Print muster.service, the unit of systemd that runs the current version of the server. It
starts it again whenever it ends, and completes an upgrade of the servers that a crash has
interrupted. With --dir, write it there, with the two units that it needs for an upgrade:
muster-switch.socket and muster-switch@.service.

The server runs as a user of its own, who must exist. Its unit lets it write to
/var/lib/muster only: with another data folder, change StateDirectory. The pointer to the
current version, in SYSCONFDIR/muster, is root's, since it decides what root runs as muster.
So in an upgrade of the servers each asks at the socket, and root's unit moves the pointer: to
a version that root has installed below PREFIX, and that may follow the current one. It refuses
if anybody but root could change a file or a folder on the way.`,
		Example: `  useradd --system --home-dir /var/lib/muster --shell /usr/sbin/nologin muster
  muster server unit --config /etc/muster/server.yml --dir /etc/systemd/system
  systemctl daemon-reload && systemctl enable --now muster`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			layout, _, err := l.layout()
			if err != nil {
				return err
			}
			if config != "" {
				if config, err = filepath.Abs(config); err != nil {
					return err
				}
			}
			units := layout.Units(user, config)
			if dir == "" {
				text := units[0].Text
				return a.show(cmd.OutOrStdout(), map[string]string{"unit": text}, func(w io.Writer) { _, _ = io.WriteString(w, text) })
			}
			for _, u := range units {
				if err := disk.WriteFile(disk.OS{}, "server unit", filepath.Join(dir, u.Name), []byte(u.Text), 0o644); err != nil {
					return err
				}
			}
			return a.show(cmd.OutOrStdout(), units, func(w io.Writer) {
				for _, u := range units {
					fmt.Fprintf(w, "Wrote %s.\n", filepath.Join(dir, u.Name))
				}
				fmt.Fprintln(w, "Next: systemctl daemon-reload && systemctl enable --now muster")
			})
		},
	}
	l.flags(cmd.Flags())
	cmd.Flags().StringVar(&user, "user", serverlayout.DefaultUser, "the user, and the group of the same name, that the server runs as")
	cmd.Flags().StringVar(&config, "config", "", "the server's configuration file (default none)")
	cmd.Flags().StringVar(&dir, "dir", "", "folder to write the units to, such as /etc/systemd/system (default: print muster.service)")
	return cmd
}
