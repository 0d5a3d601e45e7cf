"""What `make dist` makes: packages that are the same bytes wherever they are built, and what is said about them."""
