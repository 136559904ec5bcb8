package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/node/authority"
)

const (
	// defaultCertificateDays is the life of a certificate that is issued away from the server: what an
	// operator can do each quarter of a year.
	defaultCertificateDays = 90
	day                    = 24 * time.Hour
)

func (a *client) newCA() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "Keep the key of the CA that agents pin away from the server",
		Long: `The server makes a CA at its first start and keeps its key in the folder tls of its data.
Whoever steals the server can issue certificates with that key, for servers of his own,
to which hosts then follow him. Without the key he has one certificate, for the server's
own names, until it ends.

To keep the key elsewhere: copy ca.crt and ca.key from DATA/tls to a machine that is off
the network, and there

  muster ca issue --ca FOLDER --name fleet.example.com --out server.pem

Copy server.pem to the server, and there, as the user that the server runs as

  muster ca install server.pem --data DATA

Then remove DATA/tls/ca.key, also from backups, and restart the server once. Before the
certificate ends, issue and install another one; the server uses it at once. It warns in
time: in its log, and under what needs attention.

For an installation whose CA's key is never on a server, begin with ` + "`muster ca create`" + `,
install the first certificate in an empty data folder, and start the server once with
--new-store.`,
	}
	cmd.AddCommand(a.newCACreate(), a.newCAIssue(), a.newCAInstall(), a.newCAShow())
	return cmd
}

func (a *client) newCACreate() *cobra.Command {
	return &cobra.Command{
		Use:   "create FOLDER",
		Short: "Make a CA in a folder (away from the server)",
		Args:  oneArg("a folder"),
		RunE: func(cmd *cobra.Command, given []string) error {
			pin, err := authority.Create(disk.OS{}, given[0], time.Now())
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), map[string]any{"ca_pin": pin, "folder": given[0]}, func(w io.Writer) {
				fmt.Fprintf(w, "Made a CA in %s. Keep ca.key there, and a copy: without it all hosts must be enrolled again when the server's certificate ends.\nHosts pin %s\n", given[0], pin)
			})
		},
	}
}

func (a *client) newCAIssue() *cobra.Command {
	var folder, out string
	var names []string
	var days int
	cmd := &cobra.Command{
		Use:   "issue",
		Short: "Issue a server's certificate (where the CA's key is)",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			issued, err := authority.Issue(disk.OS{}, folder, names, time.Duration(days)*day, now)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return fmt.Errorf("--out: %w", err)
			}
			_, err = f.Write(issued)
			if err = errors.Join(err, f.Close()); err != nil {
				return err
			}
			end := now.Add(time.Duration(days) * day)
			return a.show(cmd.OutOrStdout(), map[string]any{"file": out, "ends": end}, func(w io.Writer) {
				fmt.Fprintf(w, "Issued a certificate until %s. %s has its key too: copy it to the server and run\n  muster ca install %s\n", end.Format(time.DateOnly), out, filepath.Base(out))
			})
		},
	}
	cmd.Flags().StringVar(&folder, "ca", "", "the folder with ca.crt and ca.key")
	cmd.Flags().StringSliceVar(&names, "name", nil, "a DNS name or an address by which agents and operators reach the server; can be repeated")
	cmd.Flags().IntVar(&days, "days", defaultCertificateDays, "how long the certificate is valid, at most 365")
	cmd.Flags().StringVar(&out, "out", "", "the file to write, which must not exist")
	for _, name := range []string{"ca", "name", "out"} {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
	return cmd
}

// tlsFolder returns the folder with the CA of a server that is named by its files.
func tlsFolder(configFile, data string) (string, error) {
	config, err := loadConfig(configFile, data)
	if err != nil {
		return "", err
	}
	if config.TLS.Certificate != "" {
		return "", fmt.Errorf("this server uses the certificate %s (tls.certificate of its configuration), and has no CA: replace that file", config.TLS.Certificate)
	}
	return filepath.Join(config.Data, "tls"), nil
}

func (a *client) newCAInstall() *cobra.Command {
	var configFile, data string
	cmd := &cobra.Command{
		Use:   "install FILE",
		Short: "Have the server use a certificate that was issued elsewhere (on the server's machine)",
		Args:  oneArg("a file"),
		RunE: func(cmd *cobra.Command, given []string) error {
			dir, err := tlsFolder(configFile, data)
			if err != nil {
				return err
			}
			issued, err := os.ReadFile(given[0])
			if err != nil {
				return err
			}
			leaf, err := authority.Install(disk.OS{}, dir, issued, time.Now())
			if err != nil {
				return fmt.Errorf("%s: %w", given[0], err)
			}
			info, err := authority.Read(disk.OS{}, dir)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), caView(info), func(w io.Writer) {
				fmt.Fprintf(w, "Installed a certificate until %s.\n", leaf.NotAfter.Format(time.DateOnly))
				if info.HasKey {
					fmt.Fprintf(w, "The CA's key is still here. Move %s to where you issue certificates, remove it from backups, and restart the server.\n", filepath.Join(dir, "ca.key"))
				}
			})
		},
	}
	offlineFlags(cmd, &configFile, &data)
	return cmd
}

func (a *client) newCAShow() *cobra.Command {
	var configFile, data string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the CA and the server's certificate, and until when they are valid (on the server's machine)",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := tlsFolder(configFile, data)
			if err != nil {
				return err
			}
			info, err := authority.Read(disk.OS{}, dir)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("there is no CA in %s: name the data folder with --data, or start the server, which makes one", dir)
			}
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), caView(info), func(w io.Writer) {
				where := "kept elsewhere"
				if info.HasKey {
					where = "in " + dir
				}
				fmt.Fprintf(w, "CA pin       %s\nCA until     %s\nCA's key     %s\n", info.Pin, info.End.Format(time.DateOnly), where)
				switch {
				case info.Server == nil:
					fmt.Fprintln(w, "Certificate  none yet")
				case info.HasKey:
					fmt.Fprintf(w, "Certificate  until %s, and the server renews it\n", info.Server.NotAfter.Format(time.DateOnly))
				default:
					fmt.Fprintf(w, "Certificate  until %s; issue and install another one before\n", info.Server.NotAfter.Format(time.DateOnly))
				}
			})
		},
	}
	offlineFlags(cmd, &configFile, &data)
	return cmd
}

// caView is the JSON of what a server has of a CA.
func caView(i authority.Info) map[string]any {
	v := map[string]any{"ca_pin": i.Pin, "ca_ends": i.End, "has_ca_key": i.HasKey}
	if i.Server != nil {
		v["certificate_ends"] = i.Server.NotAfter
	}
	return v
}
