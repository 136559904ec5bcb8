package packagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
)

// Remote is the server as publishers use it. Its files are not trusted without signatures.
type Remote interface {
	// OnlineKeys returns the server's public keys, the one for new roots first.
	OnlineKeys(ctx context.Context) ([]tuf.PublicKey, error)
	// Files returns all roots of the server and the newest of its other signed files.
	Files(ctx context.Context) ([][]byte, error)
	// Publish uploads signed files, all or none. It returns the digest that new hosts pin.
	Publish(ctx context.Context, files ...[]byte) (trustRoot string, err error)
	// Show prints the state of the server's signed metadata.
	Show(ctx context.Context, w io.Writer, asJSON bool) error
}

// AddKeyCommands adds the subcommands for root and targets files, which publishers sign.
func AddKeyCommands(cmd *cobra.Command, remote Remote) {
	keys := &cobra.Command{
		Use:   "keys",
		Short: "Manage the publishers' keys, and the root and targets files they sign",
		Long: `Hosts that were enrolled with --trust-root trust the signed files of The Update Framework
(TUF): root names the keys that may sign, and how many of them must; targets names the
packages. People sign both files, with keys that are never on a server; the server only
signs that they are current. Whoever steals the server, or fewer keys than the
threshold, cannot make a host install anything.

Keep the signed files in one folder; the private keys can be elsewhere. The commands
build on the files there and refuse older ones from a server.`,
		Example: `  muster package keys init --dir release --root-keys 3 --root-threshold 2 --targets-keys 2
  muster package push muster-agent-1.1.0-linux-amd64.tar.gz --targets-key release/targets-1.key
  muster package keys show --server`,
	}
	keys.AddCommand(newKeysInit(remote), newKeysGenerate(), newKeysShow(remote), newKeysSign(), newKeysMerge(),
		newKeysRotate(remote), newKeysRenew(remote), newKeysPublish(remote), newKeysFetch(remote), newKeysMirror(remote))
	cmd.AddCommand(keys, newAdd(remote), newFloor(remote), newAllowDowngrade(remote))
}

// readSigner reads a private key that signs root or targets.
func readSigner(cmd *cobra.Command, file string, password passwordSource) (tuf.PrivateKey, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return tuf.PrivateKey{}, hinted(err, "muster package keys init --dir DIR, or check the path of the key")
	}
	if err != nil {
		return tuf.PrivateKey{}, err
	}
	var word string
	if tuf.NeedsPassword(data) {
		if word, err = password.read(cmd, "Password of "+file+": "); err != nil {
			return tuf.PrivateKey{}, err
		}
	}
	key, err := tuf.DecryptPrivateKey(word, data)
	if err != nil {
		return tuf.PrivateKey{}, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}

// readSigners reads all keys, so that a wrong password is found before anything is signed.
func readSigners(cmd *cobra.Command, files []string, password passwordSource) ([]tuf.PrivateKey, error) {
	var keys []tuf.PrivateKey
	for _, file := range files {
		k, err := readSigner(cmd, file, password)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// readPublic reads a public key, given as text or as the name of a file.
func readPublic(flag, value string) (tuf.PublicKey, error) {
	text := value
	data, err := os.ReadFile(value)
	if err == nil {
		text = string(data)
	}
	k, perr := tuf.ParsePublicKey(text)
	if perr != nil && err != nil {
		return k, fmt.Errorf("%s %s: is neither a file that can be read (%w) nor a public key such as muster-tuf-ed25519 …", flag, value, err)
	}
	if perr != nil {
		return k, fmt.Errorf("%s %s: %w", flag, value, perr)
	}
	return k, nil
}

// fromServer is the value of --online-key that asks the server.
const fromServer = "server"

func onlineKey(ctx context.Context, remote Remote, value string) (tuf.PublicKey, error) {
	if value != fromServer {
		return readPublic("--online-key", value)
	}
	keys, err := remote.OnlineKeys(ctx)
	if err != nil {
		return tuf.PublicKey{}, hinted(fmt.Errorf("ask the server for its online key: %w", err), "muster login, or pass the public key with --online-key")
	}
	if len(keys) == 0 {
		return tuf.PublicKey{}, errors.New("the server has no online key: update the server")
	}
	return keys[0], nil
}

// newKeyFiles encodes a key pair for files. The private key is encrypted unless password
// is empty.
func newKeyFiles(key tuf.PrivateKey, password string) (private, public []byte, err error) {
	public = []byte(key.Public().String() + "\n")
	if password == "" {
		return tuf.UnsafePlainPrivateKey(key), public, nil
	}
	private, err = tuf.EncryptPrivateKey(password, key)
	return private, public, err
}

func pubFile(keyFile string) string { return strings.TrimSuffix(keyFile, ".key") + ".pub" }

func writeKey(keyFile string, key tuf.PrivateKey, password string) error {
	private, public, err := newKeyFiles(key, password)
	if err != nil {
		return err
	}
	d := disk.OS{}
	if err := disk.WriteFile(d, "write private key", keyFile, private, 0o600); err != nil {
		return err
	}
	if err := disk.WriteFile(d, "write public key", pubFile(keyFile), public, 0o644); err != nil {
		return errors.Join(err, d.Remove("write public key", keyFile))
	}
	return nil
}

func writeSigned(path string, data []byte) error {
	return disk.WriteFile(disk.OS{}, "write signed file", path, data, 0o644)
}

// checkAbsent returns an error if one of the files exists: it may be the only copy.
func checkAbsent(files ...string) error {
	for _, file := range files {
		if _, err := os.Lstat(file); err == nil {
			return hinted(fmt.Errorf("%s exists: keys and roots are never overwritten", file), "another folder, or remove the file first")
		}
	}
	return nil
}

// choosePassword reads the password for new keys. It is empty with --no-password.
func choosePassword(cmd *cobra.Command, none bool, password passwordSource) (string, error) {
	switch {
	case none && password.file != "":
		return "", errors.New("--no-password and --password-file exclude each other: pass one of them")
	case none:
		return "", nil
	}
	return password.readNew(cmd)
}
