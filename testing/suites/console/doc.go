// Package console tests the web UI in Debian's Chromium, against a real server with the simulated
// fleet of testing/kit/simfleet. What needs real agents is tested by testing/suites/e2e.
package console
