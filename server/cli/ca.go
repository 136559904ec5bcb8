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

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/node/authority"
)

const (
	// defaultCertificateDays is the life of a certificate that is issued away from the server: what an
	// operator can do each quarter of a year.
	defaultCertificateDays = 90
	day                    = 24 * time.Hour
)

func (a *client) newCA() *cobra.Command {
	return noun(&cobra.Command{
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
	}, a.newCACreate(), a.newCAIssue(), a.newCAInstall(), a.newCAShow())
}

func (a *client) newCACreate() *cobra.Command {
	return running(a, &cobra.Command{
		Use:   "create FOLDER",
		Short: "Make a CA in a folder (away from the server)",
		Args:  oneArg("a folder"),
	}, func(_ *cobra.Command, args []string) (map[string]string, error) {
		pin, err := authority.Create(disk.OS{}, args[0], time.Now())
		return map[string]string{"ca_pin": pin, "folder": args[0]}, err
	}, func(w io.Writer, out map[string]string) {
		fmt.Fprintf(w, "Made a CA in %s. Keep ca.key there, and a copy: without it all hosts must be enrolled again when the server's certificate ends.\nHosts pin %s\n", out["folder"], out["ca_pin"])
	})
}

func (a *client) newCAIssue() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "issue",
		Short: "Issue a server's certificate (where the CA's key is)",
	}
	folder := cmd.Flags().String("ca", "", "the folder with ca.crt and ca.key")
	names := cmd.Flags().StringSlice("name", nil, "a DNS name or an address by which agents and operators reach the server; can be repeated")
	days := cmd.Flags().Int("days", defaultCertificateDays, "how long the certificate is valid, at most 365")
	out := cmd.Flags().String("out", "", "the file to write, which must not exist")
	for _, name := range []string{"ca", "name", "out"} {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
	return running(a, cmd, func(*cobra.Command, []string) (made issuedCertificate, err error) {
		now, life := time.Now(), time.Duration(*days)*day
		issued, err := authority.Issue(disk.OS{}, *folder, *names, life, now)
		if err != nil {
			return made, err
		}
		f, err := os.OpenFile(*out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return made, fmt.Errorf("--out: %w", err)
		}
		_, err = f.Write(issued)
		return issuedCertificate{now.Add(life), *out}, errors.Join(err, f.Close())
	}, func(w io.Writer, made issuedCertificate) {
		fmt.Fprintf(w, "Issued a certificate until %s. %s has its key too: copy it to the server and run\n  muster ca install %s\n", made.Ends.Format(time.DateOnly), made.File, filepath.Base(made.File))
	})
}

// issuedCertificate is the output of `muster ca issue`.
type issuedCertificate struct {
	Ends time.Time `json:"ends"`
	File string    `json:"file"`
}

// onCA is running for a subcommand on the folder with the CA of a server that is named by its files.
func (a *client) onCA(cmd *cobra.Command, run func(folder string, args []string) (knownAuthority, error), human func(io.Writer, knownAuthority)) *cobra.Command {
	var files serverFiles
	files.flags(cmd)
	return running(a, cmd, func(_ *cobra.Command, args []string) (out knownAuthority, err error) {
		config, err := loadConfig(files.config, files.data)
		if err != nil {
			return out, err
		}
		if config.TLS.Certificate != "" {
			return out, fmt.Errorf("this server uses the certificate %s (tls.certificate of its configuration), and has no CA: replace that file", config.TLS.Certificate)
		}
		return run(filepath.Join(config.Data, "tls"), args)
	}, human)
}

// knownAuthority is what a server has of a CA.
type knownAuthority struct {
	Ends            time.Time  `json:"ca_ends"`
	Pin             string     `json:"ca_pin"`
	CertificateEnds *time.Time `json:"certificate_ends,omitempty"`
	HasKey          bool       `json:"has_ca_key"`
	folder          string
}

func readAuthority(folder string) (knownAuthority, error) {
	i, err := authority.Read(disk.OS{}, folder)
	out := knownAuthority{Ends: i.End, Pin: i.Pin, HasKey: i.HasKey, folder: folder}
	if i.Server != nil {
		out.CertificateEnds = &i.Server.NotAfter
	}
	return out, err
}

func (a *client) newCAInstall() *cobra.Command {
	return a.onCA(&cobra.Command{
		Use:   "install FILE",
		Short: "Have the server use a certificate that was issued elsewhere (on the server's machine)",
		Args:  oneArg("a file"),
	}, func(folder string, args []string) (out knownAuthority, err error) {
		issued, err := os.ReadFile(args[0])
		if err != nil {
			return out, err
		}
		if _, err := authority.Install(disk.OS{}, folder, issued, time.Now()); err != nil {
			return out, fmt.Errorf("%s: %w", args[0], err)
		}
		return readAuthority(folder)
	}, func(w io.Writer, out knownAuthority) {
		fmt.Fprintf(w, "Installed a certificate until %s.\n", deref(out.CertificateEnds).Format(time.DateOnly))
		if out.HasKey {
			fmt.Fprintf(w, "The CA's key is still here. Move %s to where you issue certificates, remove it from backups, and restart the server.\n", filepath.Join(out.folder, "ca.key"))
		}
	})
}

func (a *client) newCAShow() *cobra.Command {
	return a.onCA(&cobra.Command{
		Use:   "show",
		Short: "Show the CA and the server's certificate, and until when they are valid (on the server's machine)",
	}, func(folder string, _ []string) (knownAuthority, error) {
		out, err := readAuthority(folder)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("there is no CA in %s: name the data folder with --data, or start the server, which makes one", folder)
		}
		return out, err
	}, func(w io.Writer, out knownAuthority) {
		where := "kept elsewhere"
		if out.HasKey {
			where = "in " + out.folder
		}
		fmt.Fprintf(w, "CA pin       %s\nCA until     %s\nCA's key     %s\n", out.Pin, out.Ends.Format(time.DateOnly), where)
		switch {
		case out.CertificateEnds == nil:
			fmt.Fprintln(w, "Certificate  none yet")
		case out.HasKey:
			fmt.Fprintf(w, "Certificate  until %s, and the server renews it\n", out.CertificateEnds.Format(time.DateOnly))
		default:
			fmt.Fprintf(w, "Certificate  until %s; issue and install another one before\n", out.CertificateEnds.Format(time.DateOnly))
		}
	})
}
