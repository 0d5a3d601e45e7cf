"""Who a user is, and what they may do: authentication, impersonation and RBAC."""
