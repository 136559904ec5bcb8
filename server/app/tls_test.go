package app_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
)

// A client with TLS 1.2 gets only suites that authenticate what they encrypt, from the
// server's own CA and with an operator's RSA certificate.
func TestTLS12HasNoSuiteWithCBC(t *testing.T) {
	cert, key := rsaCertificate(t)
	for name, change := range map[string]func(*app.Options){
		"own CA":          func(*app.Options) {},
		"operator's, RSA": func(o *app.Options) { o.Config.TLS.Certificate, o.Config.TLS.Key = cert, key },
	} {
		t.Run(name, func(t *testing.T) {
			s := apptest.Start(t, change)
			addr := strings.TrimPrefix(s.AdminURL, "https://")
			served := 0
			for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
				c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite.ID}})
				if err != nil {
					continue
				}
				c.Close()
				served++
				if !strings.Contains(suite.Name, "_GCM_") && !strings.Contains(suite.Name, "_CHACHA20_") {
					t.Errorf("%s is served", suite.Name)
				}
			}
			if served != 3 { // AES-128, AES-256 and ChaCha20
				t.Errorf("%d suites are served", served)
			}
		})
	}
}
