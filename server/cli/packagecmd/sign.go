package packagecmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/build"
	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust"
)

func newSign() *cobra.Command {
	var keyFile string
	var password passwordSource
	cmd := &cobra.Command{
		Use:   "sign --key FILE ARCHIVE",
		Short: "Sign a package",
		Long: `Write ARCHIVE.minisig, a signature in minisign's format over the archive and its name. The
archive is inspected first: an archive that hosts would refuse, or would not request under
its name, is not signed.`,
		Example: `  muster package sign --key release.key muster-agent-1.1.0-linux-amd64.tar.gz
  MUSTER_KEY_PASSWORD=… muster package sign --key release.key muster-agent-1.1.0-linux-amd64.tar.gz`,
		Args:         oneArchive,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if keyFile == "" {
				return hinted(errors.New("--key is missing"), "muster package keygen --key release.key, then sign --key release.key")
			}
			return runSign(cmd, keyFile, password, args[0])
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "private key file (see keygen)")
	password.addFlag(cmd)
	return cmd
}

func runSign(cmd *cobra.Command, keyFile string, password passwordSource, archive string) error {
	name := filepath.Base(archive)
	c, err := inspect(cmd.Context(), cmd.ErrOrStderr(), archive)
	if err != nil {
		return err
	}
	if err := checkArchiveName(name, c.Manifest.Package); err != nil {
		return err
	}
	key, err := readPrivateKey(cmd, keyFile, password)
	if err != nil {
		return err
	}
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	p := newProgress(cmd.ErrOrStderr(), "signing "+name)
	signature, err := key.Sign(name, p.reader(f))
	p.done()
	if err != nil {
		return err
	}
	out := archive + trust.SignatureSuffix
	if err := disk.WriteFile(disk.OS{}, "write signature", out, signature, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n  signed by key %s\n", out, key.Public().ID())
	return err
}

// checkArchiveName checks that an archive has the name under which agents request it. A
// signature holds only for that name.
func checkArchiveName(name string, p manifest.Package) error {
	if p.OS == "" || p.Arch == "" {
		return nil // for any platform: agents have no fixed name for it
	}
	for _, format := range []string{build.TarGz, build.Zip} {
		if name == p.ArchiveName(format) {
			return nil
		}
	}
	want := p.ArchiveName(build.TarGz)
	return hinted(fmt.Errorf("agents request the package in %s as %s, and a signature includes the name", name, want),
		"mv %s %s", name, want)
}

func readPrivateKey(cmd *cobra.Command, file string, password passwordSource) (trust.PrivateKey, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return trust.PrivateKey{}, hinted(err, "muster package keygen --key %s", file)
	}
	if err != nil {
		return trust.PrivateKey{}, err
	}
	var word string
	if trust.NeedsPassword(data) {
		if word, err = password.read(cmd, "Password of "+file+": "); err != nil {
			return trust.PrivateKey{}, err
		}
	}
	key, err := trust.DecryptPrivateKey(word, data)
	if err != nil {
		return trust.PrivateKey{}, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}

func newVerify() *cobra.Command {
	var keys []string
	var signatureFile, output string
	cmd := &cobra.Command{
		Use:   "verify --key KEY... ARCHIVE",
		Short: "Check the signature of a package as a host would",
		Example: `  muster package verify --key release.pub muster-agent-1.1.0-linux-amd64.tar.gz
  muster package verify --key RWQ… --key RWS… -o json muster-agent-1.1.0-linux-amd64.tar.gz`,
		Args:         oneArchive,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if signatureFile == "" {
				signatureFile = args[0] + trust.SignatureSuffix
			}
			s, err := verify(cmd.ErrOrStderr(), keys, signatureFile, args[0])
			if err != nil {
				return err
			}
			if output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), s)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n  good signature by key %s\n", s.FileName, s.KeyID)
			return err
		},
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "trusted public key, as text (RW…) or as a .pub file; repeatable, one must match")
	cmd.Flags().StringVar(&signatureFile, "signature", "", "signature file (default: ARCHIVE.minisig)")
	addOutputFlag(cmd, &output)
	return cmd
}

func verify(stderr io.Writer, keys []string, signatureFile, archive string) (trust.Statement, error) {
	var none trust.Statement
	ring, err := readKeyring(keys)
	if err != nil {
		return none, err
	}
	signature, err := readSignature(signatureFile)
	if err != nil {
		return none, err
	}
	f, err := os.Open(archive)
	if err != nil {
		return none, err
	}
	defer f.Close()
	name := filepath.Base(archive)
	p := newProgress(stderr, "verifying "+name)
	defer p.done()
	return ring.Verify(name, p.reader(f), signature)
}

func readSignature(file string) ([]byte, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, hinted(err, "muster package sign, or pass the file with --signature")
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// One byte more than allowed lets package trust refuse the file.
	return io.ReadAll(io.LimitReader(f, trust.MaxSignatureSize+1))
}

// readKeyring reads public keys, each given as text or as the name of a file.
func readKeyring(keys []string) (trust.Keyring, error) {
	if len(keys) == 0 {
		return nil, hinted(errors.New("--key is missing"), "--key release.pub")
	}
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = key
		data, err := os.ReadFile(key)
		if err == nil {
			texts[i] = string(bytes.TrimSpace(data))
		} else if _, perr := trust.ParsePublicKey(key); perr != nil {
			return nil, fmt.Errorf("--key %s: is neither a file that can be read (%w) nor a public key such as RWQ…", key, err)
		}
	}
	return trust.ParseKeyring(texts)
}
