/** The pages that share an entry of the rail. */
export const SETTINGS_PAGES = [
  { to: "/settings", label: "Settings" },
  { to: "/servers", label: "Servers" },
  { to: "/admin-keys", label: "Admin keys" },
];

export const PACKAGE_PAGES = [
  { to: "/packages", label: "Packages" },
  { to: "/trust", label: "Trust" },
];
